// Package outbox is the transactional outbox of the Kafka transport: events that were written in their task's own transaction
// (design D5, D11), and the relay that sends them.
//
// An event only carries a delivery or a dead letter: it decides nothing, and a second sending is harmless (design D1).
package outbox

import (
	"context"
	"errors"
	"time"
)

// Status is where an event is.
type Status string

// The states (contract §3).
const (
	StatusNew      Status = "NEW"      // to be sent
	StatusRetrying Status = "RETRYING" // failed, waits for NextRetryAt
	StatusSent     Status = "SENT"     // the broker has acknowledged it
	StatusDead     Status = "DEAD"     // attempts used up, or refused
)

// Cause says why attempts to send an event failed.
type Cause string

// The causes. An event of which any attempt was refused counts as refused.
const (
	CauseNone        Cause = "none"
	CauseUnavailable Cause = "BROKER_UNAVAILABLE" // revived by itself once a broker answers
	CauseRefused     Cause = "REFUSED"            // waits for an operator's requeue
)

// Event is one row of outbox_event.
type Event struct {
	Seq         int64  // grows; the order of one task's events
	ID          string // UUIDv7 text, the header event-id
	Topic       string
	Key         string // the task's id
	Payload     []byte // JSON: an envelope, or a dead letter
	TraceParent string // W3C; empty: not traced

	Status       Status
	Cause        Cause
	AttemptCount int       // failed attempts
	NextRetryAt  time.Time // zero unless RETRYING
	LastError    string
	CreatedAt    time.Time
	SentAt       time.Time // zero unless SENT
}

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
