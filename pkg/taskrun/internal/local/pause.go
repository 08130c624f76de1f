package local

import (
	"context"
	"time"
)

const (
	// CallLimit bounds one call of the store or the queue.
	CallLimit  = 10 * time.Second
	retryFloor = 100 * time.Millisecond
	retryMax   = time.Second // so that work goes on soon after an outage
)

// Bounded bounds a call that must not be cut off by the end of ctx: a commit whose answer is not waited for is a claim nobody runs.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), CallLimit)
}

// Backoff is a growing pause of a loop.
type Backoff struct{ next time.Duration }

// After answers the next pause.
func (b *Backoff) After() time.Duration {
	d := max(b.next, retryFloor)
	b.next = min(d*2, retryMax)
	return d
}

// Reset starts anew.
func (b *Backoff) Reset() { b.next = 0 }

// Pause waits for d or the end of ctx; it reports whether ctx goes on.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
