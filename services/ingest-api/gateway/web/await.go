package web

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/taskstate"
)

// maxKeyLen bounds an idempotency key: the part's number is added to an upload's, and the column takes 190.
const maxKeyLen = 180

var printable = regexp.MustCompile(`^[ -~]+$`)

// IsKey reports whether text can be an idempotency key: printable ASCII, as it will be compared byte by byte.
func IsKey(text string) bool { return len(text) <= maxKeyLen && printable.MatchString(text) }

// IdempotencyKey is the header's value; empty: there is none.
func IdempotencyKey(h http.Header) (string, error) {
	values, given := h["Idempotency-Key"]
	if !given {
		return "", nil
	}
	if len(values) != 1 || !IsKey(values[0]) {
		return "", (&Error{Code: CodeInvalidKey}).About("Idempotency-Key")
	}
	return values[0], nil
}

// TakeToken asks the rate limit for one: the user first, then the address. limiter nil: there is no limit.
func TakeToken(c *gin.Context, limiter ratelimit.Limiter, m *Metrics) error {
	if limiter == nil {
		return nil
	}
	for _, key := range []string{"user:" + RequestOf(c).Principal.UserID, "ip:" + Network(c.ClientIP())} {
		wait, err := limiter.Spend(c.Request.Context(), key, 0, 1)
		if err != nil {
			return fmt.Errorf("ask the rate limit: %w", err)
		}
		if wait > 0 {
			m.Limited.Inc()
			return &Error{Code: CodeRateLimited, RetryAfter: wait}
		}
	}
	return nil
}

// Await follows a task for at most limit and puts its last state into t; it reports whether the task has ended. A task that is
// suspended is waited for no longer. A stop of the process
// ends the wait, and so does anything that goes wrong: the task is accepted all the same.
func Await(c *gin.Context, svc ingest.Service, who ingest.Caller, t *taskstate.Task, limit time.Duration, draining <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(c.Request.Context(), limit)
	defer cancel()
	events, err := svc.Watch(ctx, who, t.ID, 0)
	if err != nil {
		return false
	}
	for {
		select {
		case e, open := <-events:
			if !open {
				return t.Status.Terminal()
			}
			if *t = e.Task; e.Terminal || t.Status == taskstate.StatusSuspended { // a person may take days
				return e.Terminal
			}
		case <-draining:
			return false
		case <-ctx.Done():
			return t.Status.Terminal()
		}
	}
}
