// Package pause waits for a time or until a context ends, longer after each failure.
package pause

import (
	"context"
	"time"
)

// For waits for d or the end of ctx; it reports whether ctx goes on.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// Backoff is a pause that doubles. It is not safe for concurrent use.
type Backoff struct {
	First, Most time.Duration
	next        time.Duration
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.First)
	b.next = min(2*d, b.Most)
	return d
}

// Reset starts anew.
func (b *Backoff) Reset() { b.next = 0 }

// Nth is the n-th pause, from 0, for who counts failures elsewhere.
func Nth(n int, first, most time.Duration) time.Duration {
	const doubled = 16 // more would overflow
	return min(first<<min(n, doubled), most)
}
