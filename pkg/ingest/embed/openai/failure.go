package openai

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
)

// busyError is an error that came with status 200, or a 5xx that means "too many requests".
type busyError struct{ cause error }

func (e *busyError) Error() string { return e.cause.Error() }
func (e *busyError) Unwrap() error { return e.cause }

// busyWords tell a rate limit from another error when the status does not.
var busyWords = []string{"rate limit", "rate_limit", "ratelimit", "too many requests", "throttl", "overload", "server busy", "concurrency", "try again later"}

func soundsBusy(text string) bool { return says(text, busyWords...) }

// says reports whether a text has one of words, in whatever case.
func says(text string, words ...string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// outOfQuota is OpenAI's 429 for an empty account: waiting does not help, and it must not look like a throttle,
// which would never use up the task's attempts.
func outOfQuota(e *rest.StatusError) bool {
	return e.Status == http.StatusPaymentRequired || says(e.Cause, "insufficient_quota", "exceeded your current quota")
}

// wait is the rule for another try inside this attempt.
func (e *Embedder) wait(err error) (again bool, after time.Duration) {
	var status *rest.StatusError
	var busy *busyError
	switch {
	case errors.As(err, &busy):
		return true, 0
	case errors.As(err, &status):
		if outOfQuota(status) || tooLongWords(status) {
			return false, 0
		}
		conflict := status.Status == http.StatusConflict && status.Header.Get("X-Should-Retry") != "false"
		return conflict || status.Retryable(), status.RetryAfter(e.now())
	}
	return rest.IsTransport(err), 0
}

// failure gives an error the code that users and the state machine see. asked: the call was made in spite of a pause.
func (e *Embedder) failure(ctx context.Context, err error, asked bool) error {
	var known *ingest.Failure
	var status *rest.StatusError
	var busy *busyError
	switch {
	case errors.As(err, &known), ctx.Err() != nil:
		return err
	case errors.As(err, &busy):
		return e.throttled(err, 0, asked)
	case errors.As(err, &status):
		return e.statusFailure(status, err, asked)
	}
	f := ingest.Transient(ingest.CodeEmbed, "%w", err)
	f.Remedy = "The embedding service could not be reached or gave no usable answer."
	return f
}

// statusFailure: what the service says of the key or the model is about the settings, and every document meets it, so that their tasks
// wait for a person. A 404 that does not name the model may come from something before a service that only starts, an empty account may
// be filled, and a crash ends: these are tried again.
func (e *Embedder) statusFailure(status *rest.StatusError, err error, asked bool) error {
	after := status.RetryAfter(e.now())
	f := ingest.Transient(ingest.CodeEmbed, "%w", err)
	switch {
	case outOfQuota(status):
		f.Remedy = "The embedding account has no quota left: top it up."
	case status.Status == http.StatusTooManyRequests,
		status.Status == http.StatusServiceUnavailable && (after > 0 || soundsBusy(status.Cause)):
		return e.throttled(err, after, asked)
	case status.Status == http.StatusUnauthorized, status.Status == http.StatusForbidden:
		return ingest.Suspended(ingest.CodeModelUnusable,
			"The embedding service refuses the key: an operator corrects EMBEDDING_API_KEY, or the key's rights, and resumes the task.", "%w", err)
	case status.Status == http.StatusNotFound && says(status.Cause, "model", "deployment"):
		return ingest.Suspended(ingest.CodeModelUnusable,
			"The embedding service does not have this model: an operator corrects EMBEDDING_MODEL, or gives the service the model, and resumes the task.", "%w", err)
	case status.Status == http.StatusNotFound, status.Status == http.StatusMethodNotAllowed:
		f.Remedy = "The embedding service does not know this address: check EMBEDDING_BASE_URL and EMBEDDING_API."
	default:
		f.Remedy = "The embedding service failed."
	}
	return f
}

// throttled also holds back the other callers of this process for a wait that the service named.
func (e *Embedder) throttled(err error, after time.Duration, asked bool) error {
	if after > 0 {
		e.silence.begin(e.now(), after, asked)
	}
	f := ingest.Transient(ingest.CodeThrottled, "%w", err)
	f.Throttled, f.RetryAfter = true, after
	f.Remedy = "The embedding service asks to wait; no attempt is counted."
	return f
}

// tooLongWords finds servers that answer 500 for a text that is too long (Ollama before 0.6).
func tooLongWords(e *rest.StatusError) bool {
	return says(e.Cause, "context length", "maximum context", "input is too large")
}
