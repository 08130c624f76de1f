package web

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
	"github.com/millweir/millweir/pkg/auth/oidc"
	"github.com/millweir/millweir/pkg/auth/token"
	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/tasks/views"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

// Error is an error that knows its code.
type Error struct {
	Code       string
	Message    string // empty: the code's own
	remedy     string // empty: the code's own
	Parameter  string
	status     taskstate.Status
	RetryAfter time.Duration
	Cause      error // for the log
}

// Error is the message, and the cause after it.
func (e *Error) Error() string {
	text := e.Code
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf is an error with a code and a message for the user.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// About names the parameter that an error is about.
func (e *Error) About(parameter string) *Error {
	e.Parameter = parameter
	return e
}

// Sentinels is the table from an error of the application to its code.
var Sentinels = []struct {
	err  error
	Code string
}{
	{taskstate.ErrOutcomeUnknown, CodeOutcomeUnknown}, // before ErrUnavailable, which may stand beside it
	{taskstate.ErrNotFound, CodeTaskNotFound},
	{ingest.ErrDocumentNotFound, CodeDocumentNotFound},
	{ingest.ErrBaseNotFound, CodeBaseNotFound},
	{ingest.ErrNoDeletion, CodeNoDeletion},
	{bulk.ErrNotFound, CodeBulkNotFound},
	{checks.ErrNotFound, CodeCheckNotFound},
	{checks.ErrRunning, CodeCheckRunning},
	{views.ErrNotFound, CodeViewNotFound},
	{ingest.ErrVersionNotFound, CodeVersionNotFound},
	{ingest.ErrVersionVisible, CodeVersionVisible},
	{ingest.ErrVersionGone, CodeVersionGone},
	{auth.ErrKeyNotFound, CodeAPIKeyNotFound},
	{auth.ErrInvalidInput, CodeInvalidField},
	{outbox.ErrNotFound, CodeEventNotFound},
	{outbox.ErrNotDead, CodeEventNotDead},
	{dlq.ErrBadCursor, CodeBadCursor}, // before what it wraps
	{dlq.ErrNotFound, CodeDeadLetterNotFound},
	{dlq.ErrUnreadable, CodeDeadLetterUnreadable},
	{dlq.ErrNoEntry, CodeDeadLetterIsRow},
	{dlq.ErrNoStream, codeNoDeadLetterStream},
	{streammq.ErrUnknownTopic, CodeTopicNotFound},
	{streammq.ErrTopicName, CodeTopicNotFound},
	{streammq.ErrGroupName, CodeGroupNotFound},
	{streammq.ErrGroupLive, CodeGroupLive},
	{streammq.ErrReplayed, CodeDeadLetterReplayed},
	{streammq.ErrPartition, CodeInvalidParameter},
	{streammq.ErrEntryID, CodeInvalidParameter},
	{streammq.ErrStreamKey, CodeInvalidParameter},
	{streammq.ErrLayout, codeOtherLayout},
	{streammq.ErrUnavailable, codeQueueUnavailable},
	{streammq.ErrFull, codeQueueUnavailable},
	{streammq.ErrMalformed, codeQueueData},
	{streammq.ErrNotFound, CodeNotFound},
	{ingest.ErrBaseExists, CodeBaseExists},
	{ingest.ErrBaseNotEmpty, CodeBaseNotEmpty},
	{ingest.ErrKeyInUse, CodeKeyInUse},
	{ingest.ErrKeyReused, CodeKeyReused},
	{ingest.ErrBacklogFull, CodeBacklogFull},
	{ingest.ErrDiskFull, CodeDiskFull},
	{ingest.ErrFolder, CodeNoFolder},
	{ingest.ErrNoResources, CodeNoResources},
	{ingest.ErrTooLarge, CodeTooLarge},
	{ingest.ErrUploadExpired, CodeUploadExpired},
	{ingest.ErrChanged, CodePrecondition},
	{ingest.ErrReplaySuperseded, codeSuperseded},
	{ingest.ErrDocumentDeleted, codeDocumentDeleted},
	{oidc.ErrNotBegun, codeLoginNotBegun},
	{oidc.ErrState, codeLoginMismatch},
	{oidc.ErrDenied, codeLoginDenied},
	{oidc.ErrProvider, codeLoginProvider},
	{oidc.ErrCode, codeLoginUsed},
	{oidc.ErrUnavailable, codeLoginUnavailable}, // before that of taskstate
	{token.ErrNonce, codeLoginMismatch},
	{token.ErrAudience, codeLoginAudience},
	{token.ErrClock, codeLoginClock},
	{token.ErrSubject, codeLoginSubject},
	{auth.ErrLoginUsed, codeLoginUsed}, // an ErrInvalidKey, as the four above
	{auth.ErrInvalidKey, CodeUnauthenticated},
	{taskstate.ErrUnavailable, CodeUnavailable},
	{ingestq.ErrUnavailable, codeQueueUnavailable},
	{syscall.EMFILE, CodeNoResources},
	{syscall.ENFILE, CodeNoResources},
	{syscall.ENOMEM, CodeNoResources},
	{os.ErrDeadlineExceeded, codeRequestTimeout},
	{io.ErrUnexpectedEOF, CodeIncompleteBody},
	{context.DeadlineExceeded, CodeTimeout},
	{context.Canceled, codeClientGone},
}

// Classify finds the code of any error; what nobody knows is INTERNAL and says nothing of its cause.
func Classify(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &Error{Code: CodeTooLarge, Cause: err, Message: fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit)}
	}
	var text *ingest.TextError
	if errors.As(err, &text) {
		code := CodeInvalidText
		switch {
		case text.Long:
			code = CodeFieldTooLong
		case text.Form:
			code = CodeInvalidField
		}
		return Errorf(code, "%s", text).About(text.Field)
	}
	var deadLetter *dlq.StateError
	if errors.As(err, &deadLetter) {
		return &Error{Code: taskstate.CodeNotReplayable, status: deadLetter.Status, Cause: err, Message: deadLetter.Error()}
	}
	var refused *taskstate.RefusedError
	if errors.As(err, &refused) {
		return &Error{Code: refused.Code, status: refused.Status, Cause: err, Message: fmt.Sprintf("the task is %s", refused.Status)}
	}
	var failure *ingest.Failure
	if errors.As(err, &failure) && failure.Code != ingest.CodeInternal {
		return ofFailure(failure, err) // before the sentinels: what it wraps is a service's broken answer, not the caller's body
	}
	for _, s := range Sentinels {
		if errors.Is(err, s.err) {
			return &Error{Code: s.Code, Message: ownWords(err), RetryAfter: retryAfterOf(err), Cause: err}
		}
	}
	return &Error{Code: CodeInternal, Cause: err}
}

// ownWords are the application's words on a field that it refuses: they name it and its limit. Empty for other errors.
func ownWords(err error) string {
	for _, field := range []error{streammq.ErrPartition, streammq.ErrEntryID, streammq.ErrStreamKey, streammq.ErrGroupLive} {
		if errors.Is(err, field) {
			return Cut(err.Error(), MaxQueryChars)
		}
	}
	return ""
}

// ofFailure shows a failure's own words only when the file caused it: others may name addresses of ours.
func ofFailure(f *ingest.Failure, err error) *Error {
	e := &Error{Code: string(f.Code), remedy: f.Remedy, RetryAfter: f.RetryAfter, Cause: err}
	kind, known := Kinds[e.Code]
	if !known {
		return &Error{Code: CodeInternal, Cause: err}
	}
	if kind.Status < http.StatusInternalServerError {
		e.Message = f.Error()
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

// ProblemOf renders an error's public side.
func ProblemOf(e *Error, requestID string) wire.Problem {
	kind, ok := Kinds[e.Code]
	if !ok {
		e = &Error{Code: CodeInternal, Cause: e}
		kind = Kinds[CodeInternal]
	}
	message, remedy := e.Message, e.remedy
	if message == "" {
		message = kind.Message
	}
	if remedy == "" {
		remedy = kind.Remedy
	}
	return wire.Problem{
		Type: "urn:millweir:error:" + e.Code, Title: titleOf(kind.Status), Status: kind.Status, Code: e.Code,
		Message: message, Detail: message, Remedy: remedy, RequestID: requestID,
		Parameter: e.Parameter, TaskStatus: e.status, RetryAfter: waitSeconds(kind.Status, e.RetryAfter),
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

// Fail returns with the error, and logs what the outside does not learn.
func Fail(c *gin.Context, log *slog.Logger, err error) {
	e := Classify(err)
	if c.Request.Context().Err() != nil && errors.Is(err, context.Canceled) {
		e = &Error{Code: codeClientGone, Cause: err}
	}
	p := ProblemOf(e, RequestOf(c).ID)
	LogFailure(c, log, p, err)
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
	if r := c.Request; r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		h.Set("Connection", "close") // or net/http reads up to 256 KiB more of a body that nobody wants (A33)
	}
	Write(c, "application/problem+json", p.Status, Render(p))
}

// LogFailure writes 5xx with their cause as errors and everything else for debugging.
func LogFailure(c *gin.Context, log *slog.Logger, p wire.Problem, err error) {
	level := slog.LevelDebug
	switch {
	case p.Code == CodeInternal:
		level = slog.LevelError
	case p.Status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	}
	log.LogAttrs(c.Request.Context(), level, "gateway: request failed",
		slog.String("request_id", p.RequestID), slog.String("code", p.Code), slog.Int("status", p.Status),
		slog.String("route", c.FullPath()), slog.String("user_id", RequestOf(c).Principal.UserID), slog.String("error", err.Error()))
}
