package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/pause"
)

const (
	// maxTries and tryBudget bound what is tried inside one attempt of a task; beyond them the task's own
	// backoff takes over, which survives a restart.
	maxTries  = 3
	tryBudget = 2 * time.Second
	// firstWait is the wait before the second try when the service names none; it triples after that.
	firstWait = 100 * time.Millisecond
	// maxRetryAfter caps what a service may ask for (contract §2).
	maxRetryAfter = time.Hour
)

// Retry calls try until it succeeds, at most three times, and starts none later than 2 s after the first.
// wait tells whether an error is worth another try and how long the service asked to wait (0: it did not say);
// a wait that does not fit into the budget ends the trying at once. The last error is returned.
func Retry(ctx context.Context, try func() error, wait func(error) (again bool, after time.Duration)) error {
	start := time.Now()
	next := firstWait
	for n := 1; ; n++ {
		err := try()
		if err == nil || ctx.Err() != nil || n == maxTries {
			return err
		}
		again, after := wait(err)
		if after == 0 {
			after, next = next, 3*next
		}
		if !again || time.Since(start)+after > tryBudget {
			return err
		}
		if !pause.For(ctx, after) {
			return err
		}
	}
}

// Retryable tells whether a status may be cured by the same call again: 408, 425, 429 and 5xx,
// unless the service's x-should-retry says otherwise.
func (e *StatusError) Retryable() bool {
	switch e.Header.Get("X-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return e.Status >= 500
}

// IsStatus tells whether err is a reply of that status.
func IsStatus(err error, status int) bool {
	reply, ok := errors.AsType[*StatusError](err)
	return ok && reply.Status == status
}

// RetryAfter is what the service asked to wait: retry-after-ms, else Retry-After in seconds or as a date;
// 0 when it named nothing usable, at most 1 h.
func (e *StatusError) RetryAfter(now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(e.Header.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return capWait(ms * float64(time.Millisecond))
	}
	value := strings.TrimSpace(e.Header.Get("Retry-After"))
	if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 {
		return capWait(s * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return capWait(float64(at.Sub(now)))
	}
	return 0
}

// capWait also turns NaN and infinity, which ParseFloat accepts, into the cap.
func capWait(ns float64) time.Duration {
	if !(ns < float64(maxRetryAfter)) {
		return maxRetryAfter
	}
	return time.Duration(ns)
}

// IsTransport tells whether err is a call without a whole reply that may be tried again.
// A reply that is too large would only be too large again.
func IsTransport(err error) bool {
	var transport *TransportError
	return errors.As(err, &transport) && !errors.Is(err, ErrReplyTooLarge) && !errors.Is(err, ErrBaseURL)
}

// errorText finds the words in the error bodies that are in use: {"error":{"message"}}, {"error":"…","message":"…"},
// {"message"}, {"detail"}, {"status":{"error":"…"}}; anything else is returned as it is.
func errorText(body []byte) string {
	var reply struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Status  json.RawMessage `json:"status"`
	}
	if json.Unmarshal(body, &reply) != nil {
		return string(body)
	}
	var nested struct {
		Message string `json:"message"`
		Code    any    `json:"code"`
	}
	var flat string
	var status struct { // Qdrant's
		Error string `json:"error"`
	}
	switch {
	case json.Unmarshal(reply.Error, &nested) == nil && nested.Message != "":
		return nested.Message
	case json.Unmarshal(reply.Error, &flat) == nil && flat != "" && reply.Message != "":
		return flat + ": " + reply.Message
	case flat != "":
		return flat
	case reply.Message != "":
		return reply.Message
	case len(reply.Detail) > 0:
		return string(reply.Detail)
	case json.Unmarshal(reply.Status, &status) == nil && status.Error != "":
		return status.Error
	}
	return string(body)
}
