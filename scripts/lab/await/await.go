// Package await waits for something without sleeping.
package await

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrTimeout is wrapped when what was waited for did not come in time; the text holds the last reason.
var ErrTimeout = errors.New("did not happen in time")

// Pause waits d; false when ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Until asks cond every so often until it returns nil.
// Errors: ErrTimeout with cond's last answer after limit; the context's own.
func Until(ctx context.Context, limit, every time.Duration, cond func(ctx context.Context) error) error {
	deadline := time.Now().Add(limit)
	for {
		err := cond(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w (%s): %w", ErrTimeout, limit, err)
		}
		Pause(ctx, every)
	}
}
