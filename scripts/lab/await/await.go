// Package await waits for something without sleeping.
package await

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	return UntilNone(ctx, limit, every, func(ctx context.Context) (int, error) { return 0, cond(ctx) })
}

// UntilNone is Until for a cond that also tells how many things it still waits for: limit begins anew whenever these are fewer than ever
// before, so that it bounds the wait for one of them, however many there are and however slow the machine is.
func UntilNone(ctx context.Context, limit, every time.Duration, cond func(ctx context.Context) (left int, err error)) error {
	deadline, least := time.Now().Add(limit), math.MaxInt
	for {
		left, err := cond(ctx)
		if err == nil {
			return nil
		}
		if least != math.MaxInt && left < least {
			deadline = time.Now().Add(limit)
		}
		least = min(least, left)
		if ctx.Err() != nil {
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w (%s): %w", ErrTimeout, limit, err)
		}
		Pause(ctx, every)
	}
}
