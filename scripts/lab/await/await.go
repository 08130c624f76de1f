// Package await waits for something without sleeping.
package await

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/pause"
)

// ErrTimeout is wrapped when what was waited for did not come in time; the text holds the last reason.
var ErrTimeout = errors.New("did not happen in time")

// Pause waits d; false when ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool { return pause.For(ctx, d) }

// Closed waits until a channel is closed. Errors: why ctx ended.
func Closed(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Beside runs f beside its caller. stop ends f's context, waits for f and returns its error, each time the same.
func Beside(ctx context.Context, f func(ctx context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
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
