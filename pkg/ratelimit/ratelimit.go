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
