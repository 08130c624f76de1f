package outbox

import (
	"context"
	"errors"
)

// ErrRefused marks an error by which broker or client names this record or our rights: message or batch too large,
// invalid record, topic or cluster authorisation. Such an event is DEAD at once.
// A sender wraps it, or returns a *RefusedError.
var ErrRefused = errors.New("refused")

// RefusedError is a refusal. Late tells that it counts only once all attempts are used up: a topic that fresh metadata does
// not know may be made in a moment.
type RefusedError struct {
	Err  error
	Late bool
}

// Error is the cause in words.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap gives the cause, and ErrRefused.
func (e *RefusedError) Unwrap() []error { return []error{ErrRefused, e.Err} }

// Result tells what became of one event.
type Result struct {
	Seq int64
	Err error // nil: the broker has acknowledged it
}

// Sender brings events to a broker. It is safe for concurrent use.
type Sender interface {
	// Send sends all events at once and returns one result per event, in their order. An error is a *RefusedError (or wraps
	// ErrRefused) where broker or client names this record or our rights; anything else counts as CauseUnavailable.
	// It returns within a bounded time: what is not acknowledged by then is answered with an error.
	Send(ctx context.Context, events []Event) []Result
	// Probe returns nil when a broker answers metadata.
	Probe(ctx context.Context) error
}

// Signal is a signal that there may be events to send: rung after the commit that wrote them, waited for by a relay in the same
// process. Rings while nobody listens come together as one. Safe for concurrent use.
type Signal struct{ c chan struct{} }

// NewSignal makes a signal.
func NewSignal() *Signal { return &Signal{c: make(chan struct{}, 1)} }

// Ring never blocks.
func (b *Signal) Ring() {
	select {
	case b.c <- struct{}{}:
	default:
	}
}

// C gives one value for the rings since the last.
func (b *Signal) C() <-chan struct{} { return b.c }
