// Package outbox is the transactional outbox of the Kafka transport: events that were written in their task's own transaction
// (design D5, D11), and the relay that sends them.
//
// An event only carries a delivery or a dead letter: it decides nothing, and a second sending is harmless (design D1).
package outbox

import "time"

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
