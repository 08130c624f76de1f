package ratelimit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// askTimeout is how long a shared limiter may think: an upload must not wait for it.
	askTimeout = 250 * time.Millisecond
	// restTime is how long a shared limiter that failed is left alone.
	restTime = 2 * time.Second
)

// Fallback asks a shared limiter and, while that one does not answer, a local one.
// So uploads go on when Redis is down, each process with the whole limit for itself.
type Fallback struct {
	shared, local Limiter
	log           *slog.Logger
	now           func() time.Time
	restUntil     atomic.Int64 // unix nanoseconds; 0: the shared one answers
}

// NewFallback joins the two; now nil is time.Now.
func NewFallback(shared, local Limiter, log *slog.Logger, now func() time.Time) *Fallback {
	if now == nil {
		now = time.Now
	}
	return &Fallback{shared: shared, local: local, log: log, now: now}
}

// Take returns the shared limiter's result, or the local one's.
func (f *Fallback) Take(ctx context.Context, key string) (Result, error) {
	rest := f.restUntil.Load()
	if f.now().UnixNano() < rest {
		return f.local.Take(ctx, key)
	}
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := f.shared.Take(asked, key)
	if err == nil {
		if rest != 0 && f.restUntil.CompareAndSwap(rest, 0) {
			f.log.InfoContext(ctx, "ratelimit: shared limiter answers again")
		}
		return r, nil
	}
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	if f.restUntil.CompareAndSwap(rest, f.now().Add(restTime).UnixNano()) && rest == 0 {
		f.log.WarnContext(ctx, "ratelimit: shared limiter does not answer, each process limits for itself", slog.Any("error", err))
	}
	return f.local.Take(ctx, key)
}
