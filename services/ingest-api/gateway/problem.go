package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

// apiError is an error that knows its code.
type apiError struct {
	code       string
	message    string // empty: the code's own
	remedy     string // empty: the code's own
	parameter  string
	status     taskstate.Status
	retryAfter time.Duration
	cause      error // for the log
}

// Error is the message, and the cause after it.
func (e *apiError) Error() string {
	text := e.code
	if e.message != "" {
		text += ": " + e.message
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *apiError) Unwrap() error { return e.cause }

// problemf is an error with a code and a message for the user.
func problemf(code, format string, args ...any) *apiError {
	return &apiError{code: code, message: fmt.Sprintf(format, args...)}
}

// about names the parameter that an error is about.
func (e *apiError) about(parameter string) *apiError {
	e.parameter = parameter
	return e
}

// sentinels is the table from an error of the application to its code.
func sentinels() []struct {
	err  error
	code string
} {
	return []struct {
		err  error
		code string
	}{
		{taskstate.ErrOutcomeUnknown, codeOutcomeUnknown}, // before ErrUnavailable, which may stand beside it
		{taskstate.ErrNotFound, codeTaskNotFound},
		{ingest.ErrDocumentNotFound, codeDocumentNotFound},
		{ingest.ErrBaseNotFound, codeBaseNotFound},
		{auth.ErrKeyNotFound, codeAPIKeyNotFound},
		{auth.ErrInvalidInput, codeInvalidField},
		{outbox.ErrNotFound, codeEventNotFound},
		{outbox.ErrNotDead, codeEventNotDead},
		{dlq.ErrBadCursor, codeBadCursor}, // before what it wraps
		{dlq.ErrNotFound, codeDeadLetterNotFound},
		{dlq.ErrUnreadable, codeDeadLetterUnreadable},
		{dlq.ErrNoEntry, codeDeadLetterIsRow},
		{dlq.ErrNoStream, codeNoDeadLetterStream},
		{streammq.ErrUnknownTopic, codeTopicNotFound},
		{streammq.ErrTopicName, codeTopicNotFound},
		{streammq.ErrGroupName, codeGroupNotFound},
		{streammq.ErrGroupLive, codeGroupLive},
		{streammq.ErrReplayed, codeDeadLetterReplayed},
		{streammq.ErrPartition, codeInvalidParameter},
		{streammq.ErrEntryID, codeInvalidParameter},
		{streammq.ErrStreamKey, codeInvalidParameter},
		{streammq.ErrLayout, codeOtherLayout},
		{streammq.ErrUnavailable, codeQueueUnavailable},
		{streammq.ErrFull, codeQueueUnavailable},
		{streammq.ErrMalformed, codeQueueData},
		{streammq.ErrNotFound, codeNotFound},
		{ingest.ErrBadTitle, codeInvalidField},
		{ingest.ErrBadBaseName, codeInvalidField},
		{ingest.ErrBaseExists, codeBaseExists},
		{ingest.ErrBaseNotEmpty, codeBaseNotEmpty},
		{ingest.ErrKeyInUse, codeKeyInUse},
		{ingest.ErrKeyReused, codeKeyReused},
		{ingest.ErrBacklogFull, codeBacklogFull},
		{ingest.ErrDiskFull, codeDiskFull},
		{ingest.ErrFolder, codeNoFolder},
		{ingest.ErrNoResources, codeNoResources},
		{ingest.ErrTooLarge, codeTooLarge},
		{ingest.ErrUploadExpired, codeUploadExpired},
		{ingest.ErrChanged, codePrecondition},
		{ingest.ErrReplaySuperseded, codeSuperseded},
		{ingest.ErrDocumentDeleted, codeDocumentDeleted},
		{auth.ErrInvalidKey, codeUnauthenticated},
		{taskstate.ErrUnavailable, codeUnavailable},
		{ingestq.ErrUnavailable, codeQueueUnavailable},
		{syscall.EMFILE, codeNoResources},
		{syscall.ENFILE, codeNoResources},
		{syscall.ENOMEM, codeNoResources},
		{os.ErrDeadlineExceeded, codeRequestTimeout},
		{io.ErrUnexpectedEOF, codeIncompleteBody},
		{context.DeadlineExceeded, codeTimeout},
		{context.Canceled, codeClientGone},
	}
}

// classify finds the code of any error; what nobody knows is INTERNAL and says nothing of its cause.
func classify(err error) *apiError {
	var known *apiError
	if errors.As(err, &known) {
		return known
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &apiError{code: codeTooLarge, cause: err, message: fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit)}
	}
	var deadLetter *dlq.StateError
	if errors.As(err, &deadLetter) {
		return &apiError{code: taskstate.CodeNotReplayable, status: deadLetter.Status, cause: err, message: deadLetter.Error()}
	}
	var refused *taskstate.RefusedError
	if errors.As(err, &refused) {
		return &apiError{code: refused.Code, status: refused.Status, cause: err, message: fmt.Sprintf("the task is %s", refused.Status)}
	}
	var failure *ingest.Failure
	if errors.As(err, &failure) && failure.Code != ingest.CodeInternal {
		return ofFailure(failure, err) // before the sentinels: what it wraps is a service's broken answer, not the caller's body
	}
	for _, s := range sentinels() {
		if errors.Is(err, s.err) {
			return &apiError{code: s.code, message: ownWords(err), retryAfter: retryAfterOf(err), cause: err}
		}
	}
	return &apiError{code: codeInternal, cause: err}
}

// ownWords are the application's words on a field that it refuses: they name it and its limit. Empty for other errors.
func ownWords(err error) string {
	for _, field := range []error{ingest.ErrBadTitle, ingest.ErrBadBaseName, streammq.ErrPartition, streammq.ErrEntryID, streammq.ErrStreamKey, streammq.ErrGroupLive} {
		if errors.Is(err, field) {
			return cut(err.Error(), maxQueryChars)
		}
	}
	return ""
}

// ofFailure shows a failure's own words only when the file caused it: others may name addresses of ours.
func ofFailure(f *ingest.Failure, err error) *apiError {
	e := &apiError{code: string(f.Code), remedy: f.Remedy, retryAfter: f.RetryAfter, cause: err}
	kind, known := kinds[e.code]
	if !known {
		return &apiError{code: codeInternal, cause: err}
	}
	if kind.Status < http.StatusInternalServerError {
		e.message = f.Error()
	}
	return e
}

// retryAfterOf is the wait that an error in the chain names; 0: none.
func retryAfterOf(err error) time.Duration {
	var named interface{ RetryAfter() time.Duration }
	if errors.As(err, &named) {
		return named.RetryAfter()
	}
	return 0
}

// problemOf renders an error's public side.
func problemOf(e *apiError, requestID string) wire.Problem {
	kind, ok := kinds[e.code]
	if !ok {
		e = &apiError{code: codeInternal, cause: e}
		kind = kinds[codeInternal]
	}
	message, remedy := e.message, e.remedy
	if message == "" {
		message = kind.Message
	}
	if remedy == "" {
		remedy = kind.Remedy
	}
	return wire.Problem{
		Type: "urn:millweir:error:" + e.code, Title: titleOf(kind.Status), Status: kind.Status, Code: e.code,
		Message: message, Detail: message, Remedy: remedy, RequestID: requestID,
		Parameter: e.parameter, TaskStatus: e.status, RetryAfter: waitSeconds(kind.Status, e.retryAfter),
	}
}

// waitSeconds is the Retry-After of an answer: whole seconds, rounded up; 0: none.
func waitSeconds(status int, named time.Duration) int {
	if named > 0 {
		return int(math.Ceil(named.Seconds()))
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		return defaultRetryAfterSecs
	}
	return 0
}

func titleOf(status int) string {
	if status == statusClientGone {
		return "Client Closed Request"
	}
	return http.StatusText(status)
}

// fail returns with the error, and logs what the outside does not learn.
func fail(c *gin.Context, log *slog.Logger, err error) {
	e := classify(err)
	if c.Request.Context().Err() != nil && errors.Is(err, context.Canceled) {
		e = &apiError{code: codeClientGone, cause: err}
	}
	p := problemOf(e, requestOf(c).id)
	logFailure(c, log, p, err)
	if c.Writer.Written() {
		return // an event stream that broke: nothing can be said any more
	}
	h := c.Writer.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="millweir"`)
	}
	h.Del("ETag")
	if unreadBody(c.Request) {
		h.Set("Connection", "close") // or net/http reads up to 256 KiB more of a body that nobody wants (A33)
	}
	writeJSONAs(c, "application/problem+json", p.Status, p)
}

// unreadBody reports whether the rest of a body is better left on the wire.
func unreadBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// logFailure writes 5xx with their cause as errors and everything else for debugging.
func logFailure(c *gin.Context, log *slog.Logger, p wire.Problem, err error) {
	level := slog.LevelDebug
	switch {
	case p.Code == codeInternal:
		level = slog.LevelError
	case p.Status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	}
	log.LogAttrs(c.Request.Context(), level, "gateway: request failed",
		slog.String("request_id", p.RequestID), slog.String("code", p.Code), slog.Int("status", p.Status),
		slog.String("route", c.FullPath()), slog.String("user_id", requestOf(c).principal.UserID), slog.String("error", err.Error()))
}
