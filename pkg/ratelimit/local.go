package ratelimit

import (
	"context"
	"sync"
	"time"
)

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
