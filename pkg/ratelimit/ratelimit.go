// Package ratelimit says when somebody may act: the limiter port, its in-memory form, and a pair of both
// that survives the loss of Redis. All forms use the generic cell rate algorithm: a limit of n per window lets n
// through at once and then one every window/n.
//
// Libraries were tried and break the promise of the wait, that who waits so long is let in. golang.org/x/time/rate
// counts in floating point: 6,333 of 120,000 calls were refused after such a wait. rueidislimiter counts in fixed
// windows of the client's clock: it sends everybody away until the window's end, and counts refused calls too.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
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
func (l Limit) Step() time.Duration { return l.time(1) }

// time is that after which n events come back; the product of both fits a float64 for a trillion events.
func (l Limit) time(n int64) time.Duration {
	return time.Duration(float64(n) * float64(l.Window) / float64(l.Events))
}

// PerMinute is a limit of n events a minute without a burst: at most those of one second at once. n is at least 1.
func PerMinute(n int) Limit {
	const seconds = 60
	at := max(n/seconds, 1)
	return Limit{Events: at, Window: time.Duration(float64(at) * float64(time.Minute) / float64(n))}
}

// Always is a longest wait for events that are taken whenever they may be used.
const Always = time.Duration(math.MaxInt64)

// Limiter counts events by key, for one limit or for several at once. It is safe for concurrent use.
type Limiter interface {
	// Spend takes events of key, of each limit its cost, all or none. It returns the wait after which they may be used, 0: now.
	// A wait longer than most says that none was taken, and when to come again. A cost that is larger than its limit is taken at once,
	// and who comes next waits for it. A negative cost gives events back. An error says that nothing is known; it counts nothing.
	Spend(ctx context.Context, key string, most time.Duration, costs ...int64) (wait time.Duration, err error)
}

// maxKeys bounds the memory of a Local: beyond it idle keys are swept, then the oldest state is dropped as a whole.
const maxKeys = 100_000

// Local limits within this process.
type Local struct {
	limits []Limit
	now    func() time.Time

	mu    sync.Mutex
	due   map[string][]time.Time // key → when all of its events will be back, of each limit (theoretical arrival time)
	swept time.Time
}

// NewLocal makes a limiter for this process alone; now nil is time.Now. A limit that does not validate panics.
func NewLocal(now func() time.Time, limits ...Limit) *Local {
	MustBe(limits)
	if now == nil {
		now = time.Now
	}
	return &Local{limits: limits, now: now, due: map[string][]time.Time{}, swept: now()}
}

// MustBe panics unless there are limits and all of them validate.
func MustBe(limits []Limit) {
	if len(limits) == 0 {
		panic("ratelimit: no limit")
	}
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			panic("ratelimit: " + err.Error())
		}
	}
}

// Spend never returns an error.
func (l *Local) Spend(_ context.Context, key string, most time.Duration, costs ...int64) (wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.sweep(now)
	due := slices.Clone(l.due[key])
	if due == nil {
		due = make([]time.Time, len(l.limits))
	}
	for i, limit := range l.limits {
		if costs[i] > 0 {
			if due[i].Before(now) {
				due[i] = now
			}
			wait = max(wait, due[i].Sub(now)+limit.Step()-limit.Window)
		}
		due[i] = due[i].Add(limit.time(costs[i]))
	}
	if wait <= most {
		l.due[key] = due
	}
	return wait, nil
}

// Keys is how many keys are held.
func (l *Local) Keys() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.due)
}

// sweep forgets keys whose events are all back: once a window, or when there are too many.
func (l *Local) sweep(now time.Time) {
	if now.Sub(l.swept) < l.limits[0].Window && len(l.due) < maxKeys {
		return
	}
	l.swept = now
	for key, due := range l.due {
		if !slices.ContainsFunc(due, now.Before) {
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

// Spend returns the shared limiter's result, or the local one's.
func (f *Fallback) Spend(ctx context.Context, key string, most time.Duration, costs ...int64) (wait time.Duration, err error) {
	rest := f.restUntil.Load()
	if f.now().UnixNano() < rest {
		return f.local.Spend(ctx, key, most, costs...)
	}
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	wait, err = f.shared.Spend(asked, key, most, costs...)
	if err == nil {
		if rest != 0 && f.restUntil.CompareAndSwap(rest, 0) {
			f.log.InfoContext(ctx, "ratelimit: shared limiter answers again")
		}
		return wait, nil
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if f.restUntil.CompareAndSwap(rest, f.now().Add(restTime).UnixNano()) && rest == 0 {
		f.log.WarnContext(ctx, "ratelimit: shared limiter does not answer, each process limits for itself", slog.Any("error", err))
	}
	return f.local.Spend(ctx, key, most, costs...)
}
