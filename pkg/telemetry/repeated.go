package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const repeatedKeys = 1000 // beyond it the oldest knowledge is thrown away, so that keys from outside cannot fill memory

// Repeated logs errors of loops that fail again and again: the first of each key at once,
// then at most one line an interval, with the number of lines left out since the last one.
// It is safe for concurrent use.
type Repeated struct {
	log   *slog.Logger
	every time.Duration
	now   func() time.Time

	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	last       time.Time
	suppressed int
}

// NewRepeated returns a Repeated that writes at most one line per key and interval. now is time.Now outside tests.
func NewRepeated(log *slog.Logger, every time.Duration, now func() time.Time) *Repeated {
	return &Repeated{log: log, every: every, now: now, seen: map[string]*repeat{}}
}

// Log writes msg at the level unless a line of the same key was written within the interval.
// It reports whether it wrote.
func (r *Repeated) Log(ctx context.Context, level slog.Level, key, msg string, attrs ...slog.Attr) bool {
	suppressed, ok := r.take(key)
	if !ok {
		return false
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	r.log.LogAttrs(ctx, level, msg, attrs...)
	return true
}

// Reset forgets a key, so that its next line is written at once: call it when the loop works again.
// It reports whether the key had been logged, so that the recovery can be logged too.
func (r *Repeated) Reset(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.seen[key]
	delete(r.seen, key)
	return known
}

func (r *Repeated) take(key string) (suppressed int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	e, known := r.seen[key]
	if known && now.Sub(e.last) < r.every {
		e.suppressed++
		return 0, false
	}
	if !known {
		if len(r.seen) >= repeatedKeys {
			clear(r.seen)
		}
		e = &repeat{}
		r.seen[key] = e
	}
	suppressed, e.suppressed, e.last = e.suppressed, 0, now
	return suppressed, true
}
