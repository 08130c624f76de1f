package cli

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/millweir/millweir/services/millweir/client"
)

// Exit codes (contract §9).
const (
	ExitOK          = 0
	ExitFailed      = 1 // the work itself failed: a document is DEAD, say
	ExitUsage       = 2
	ExitAuth        = 3
	ExitNotFound    = 4
	ExitBadInput    = 5
	ExitRateLimited = 6
	ExitServer      = 7 // the server's fault, or no way to it
	ExitConfirm     = 10
	ExitTimeout     = 124
	ExitInterrupted = 130
)

// codedError ends the command with a code of its own.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// Usage is a wrong call: exit 2.
func Usage(text string) error { return &codedError{ExitUsage, errors.New(text)} }

// BadInput is exit 5.
func BadInput(err error) error { return &codedError{ExitBadInput, err} }

// NotFound is exit 4.
func NotFound(err error) error { return &codedError{ExitNotFound, err} }

// Failed is exit 1.
func Failed(err error) error { return &codedError{ExitFailed, err} }

// Unconfirmed is exit 10.
func Unconfirmed(err error) error { return &codedError{ExitConfirm, err} }

// exitCode is contract §9's for an error.
func exitCode(ctx context.Context, err error) int {
	var coded *codedError
	var refused *client.Error
	switch {
	case errors.As(err, &coded) && coded.code == ExitUsage, errors.Is(err, client.ErrAddress):
		return ExitUsage
	case errors.Is(ctx.Err(), context.Canceled):
		return ExitInterrupted
	case coded != nil:
		return coded.code
	case errors.As(err, &refused):
		return refusalCode(refused.Status)
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), errors.Is(err, client.ErrNoFile):
		return ExitBadInput
	}
	return ExitServer
}

// refusalCode is the exit code for a status of the gateway.
func refusalCode(status int) int {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ExitAuth
	case status == http.StatusNotFound:
		return ExitNotFound
	case status == http.StatusTooManyRequests:
		return ExitRateLimited
	case status >= http.StatusInternalServerError:
		return ExitServer
	}
	return ExitBadInput
}
