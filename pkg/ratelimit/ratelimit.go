// Package ratelimit says whether somebody may act now: the limiter port, its in-memory form, and a pair of both
// that survives the loss of Redis. All forms use the generic cell rate algorithm: a limit of n per window lets n
// through at once and then one every window/n.
//
// Libraries were tried and break the promise of RetryAfter, that who waits so long is let in. golang.org/x/time/rate
// counts in floating point: 6,333 of 120,000 calls were refused after such a wait. rueidislimiter counts in fixed
// windows of the client's clock: it sends everybody away until the window's end, and counts refused calls too.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Limit is how much one key may do.
type Limit struct {
	Events int           // at most that many at once; at least 1
	Window time.Duration // the time in which they all come back; at least Events microseconds
}

// Validate returns what is wrong with the limit.
func (l Limit) Validate() error {
	var errs []error
	if l.Events < 1 {
		errs = append(errs, fmt.Errorf("events %d is below 1", l.Events))
	}
	if l.Window < time.Duration(max(l.Events, 1))*time.Microsecond {
		errs = append(errs, fmt.Errorf("window %s is shorter than a microsecond an event", l.Window))
	}
	return errors.Join(errs...)
}

// Step is the time after which one event comes back.
func (l Limit) Step() time.Duration { return l.Window / time.Duration(l.Events) }

// Result is a limiter's answer.
type Result struct {
	Allowed    bool
	RetryAfter time.Duration // when not allowed: the wait until one event is; else 0
}

// Limiter counts events by key. It is safe for concurrent use.
type Limiter interface {
	// Take asks for one event of key. An error says that nothing is known; it counts nothing.
	Take(ctx context.Context, key string) (Result, error)
}

// maxKeys bounds the memory of a Local: beyond it idle keys are swept, then the oldest state is dropped as a whole.
const maxKeys = 100_000

// Local limits within this process.
type Local struct {
	limit Limit
	now   func() time.Time

	mu    sync.Mutex
	due   map[string]time.Time // key → when all of its events will be back (theoretical arrival time)
	swept time.Time
}

// NewLocal makes a limiter for this process alone; now nil is time.Now. A limit that does not validate panics.
func NewLocal(limit Limit, now func() time.Time) *Local {
	if err := limit.Validate(); err != nil {
		panic("ratelimit: " + err.Error())
	}
	if now == nil {
		now = time.Now
	}
	return &Local{limit: limit, now: now, due: map[string]time.Time{}, swept: now()}
}

// Take never returns an error.
func (l *Local) Take(_ context.Context, key string) (Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.sweep(now)
	due := l.due[key]
	if due.Before(now) {
		due = now
	}
	next := due.Add(l.limit.Step())
	if wait := next.Sub(now) - l.limit.Window; wait > 0 {
		return Result{RetryAfter: wait}, nil
	}
	l.due[key] = next
	return Result{Allowed: true}, nil
}

// Keys is how many keys are held.
func (l *Local) Keys() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.due)
}

// sweep forgets keys whose events are all back: once a window, or when there are too many.
func (l *Local) sweep(now time.Time) {
	if now.Sub(l.swept) < l.limit.Window && len(l.due) < maxKeys {
		return
	}
	l.swept = now
	for key, due := range l.due {
		if !due.After(now) {
			delete(l.due, key)
		}
	}
	if len(l.due) >= maxKeys {
		clear(l.due)
	}
}

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
