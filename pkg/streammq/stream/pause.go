package stream

import (
	"context"
	"sync/atomic"
	"time"
)

// Sleep waits for a time. Error: ctx's.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	firstPause = 50 * time.Millisecond // after a failed read, doubled with each one in a row
	maxPause   = 2 * time.Second
)

// Pauses keep a caller that only loops over failing reads from spinning. The zero value is ready for use.
type Pauses struct{ failures atomic.Int32 }

// Failed waits after a failure, for at most limit.
func (p *Pauses) Failed(ctx context.Context, limit time.Duration) {
	shift := min(p.failures.Add(1)-1, 10)
	_ = Sleep(ctx, min(firstPause<<shift, maxPause, limit)) // the next read tells of ctx's end
}

// Done ends a row of failures.
func (p *Pauses) Done() { p.failures.Store(0) }
