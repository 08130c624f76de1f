package taskstate

import (
	"encoding/json"
	"time"
)

// Answer is what a decision tells its caller.
type Answer string

// The returns.
const (
	AnswerApplied  Answer = "applied"  // the change was written
	AnswerClaimed  Answer = "claimed"  // the claim was won
	AnswerNotDue   Answer = "not_due"  // RETRYING and its time has not come
	AnswerSkipped  Answer = "skipped"  // terminal, suspended or gone
	AnswerBusy     Answer = "busy"     // another holds a live lease or reservation
	AnswerIsolated Answer = "solo"     // isolated run: only by a process that holds nothing else
	AnswerReserved Answer = "reserved" // isolated, and reserved for this process now
	AnswerDead     Answer = "dead"     // the crash limit was reached: set to DEAD instead of claimed
	AnswerLost     Answer = "lost"     // the holder's token is no longer valid: stop
	AnswerRefused  Answer = "refused"  // a person asked for what this state does not allow; Err says why
	AnswerKept     Answer = "kept"     // nothing to do for this row
)

// Delay is a time relative to the moment of the statement that writes it, by the database's clock (design D14).
type Delay struct {
	Kind DelayKind
	In   time.Duration // for DelayIn; microseconds count
}

// DelayKind tells how to read a Delay.
type DelayKind int

// The kinds of delay.
const (
	DelayKeep  DelayKind = iota // leave the column as it is
	DelayNever                  // the column's "none"
	DelayIn                     // now + In
	DelayLease                  // the end of the new holder's lease; a third of In is left of it at least
)

// Never is the column's "none".
func Never() Delay { return Delay{Kind: DelayNever} }

// In is the moment of the statement plus d.
func In(d time.Duration) Delay { return Delay{Kind: DelayIn, In: d} }

// Lease is the end of the lease that the new holder has for all of its claims (design D22): it lasts d when it is renewed, and a
// process that has less than a third of that left renews it before it claims.
func Lease(d time.Duration) Delay { return Delay{Kind: DelayLease, In: d} }

// Change is one conditional update of one row.
// The store writes it with the predicate (id, status = From, fence = Fence) and adds the audit row unless Silent.
type Change struct {
	TaskID string

	// what the row must still say
	From  Status
	Fence int64

	// what it says afterwards
	To            Status
	NewFence      int64
	AttemptCount  int
	CrashCount    int
	ThrottleCount int
	NextRetry     Delay // DelayNever: NULL
	LeaseOwner    string
	Wake          Delay
	Enqueue       Delay // DelayIn{0}: promised_at = now
	EnqueueCount  int
	DLQ           DLQState
	Delivery      string
	AttemptTrace  string // W3C traceparent of the attempt that a claim begins, 55 ASCII characters; empty: not traced
	Progress      Progress
	LastError     string
	ErrorMessage  string
	ErrorCode     string
	Result        json.RawMessage

	// Deliver asks for a message about the row, written in its own transaction where the store has an outbox (Kafka):
	// a delivery, or for a DEAD row its dead letter. Where it has none (Redis) nothing follows from it.
	Deliver bool

	// the audit row
	Silent  bool // no status changed: a reservation, a promise, a mark; no audit row
	Reason  Reason
	Actor   Actor
	Message string // why, in words; at most MaxErrorChars characters
	Epoch   int64
}

// Decision is what to do with one task.
type Decision struct {
	TaskID string
	Answer Answer
	Change *Change // nil: leave the row alone
	Err    error   // with AnswerRefused
}

// DBClock is the database's word on time, read in the transaction that locks the rows.
type DBClock struct {
	Now   time.Time
	Epoch int64
}

// change starts a Change that keeps everything of t.
func change(t Task, m DBClock) *Change {
	return &Change{
		TaskID: t.ID, From: t.Status, Fence: t.Fence, Epoch: m.Epoch,
		To: t.Status, NewFence: t.Fence, AttemptCount: t.AttemptCount, CrashCount: t.CrashCount,
		ThrottleCount: t.ThrottleCount, LeaseOwner: t.LeaseOwner, EnqueueCount: t.EnqueueCount,
		DLQ: t.DLQ, Delivery: t.Delivery, AttemptTrace: t.AttemptTrace, Progress: t.Progress, LastError: t.LastError,
		ErrorMessage: t.ErrorMessage, ErrorCode: t.ErrorCode, Result: t.Result,
	}
}

// to sets the target with its reason, actor and words, and frees the lease.
func (c *Change) to(s Status, r Reason, a Actor, message string) *Change {
	c.To, c.Reason, c.Actor, c.Message = s, r, a, Shorten(message, MaxErrorChars)
	c.LeaseOwner = ""
	c.Wake, c.NextRetry = Never(), Never()
	return c
}

// queued makes the change a promise: a delivery is to follow, and the sweep looks at once if none does.
func (c *Change) queued() *Change {
	c.Enqueue, c.EnqueueCount, c.Wake = In(0), 0, In(0)
	c.Deliver = true
	return c
}

// decide wraps a change as applied.
func decide(a Answer, c *Change) Decision {
	return Decision{TaskID: c.TaskID, Answer: a, Change: c}
}

// leave returns without a change.
func leave(t Task, a Answer) Decision { return Decision{TaskID: t.ID, Answer: a} }
