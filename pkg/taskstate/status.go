package taskstate

import "slices"

// Status is the state of a task (contract §2).
type Status string

// The states.
const (
	StatusNone      Status = ""          // before a task exists; only ever a transition's from
	StatusQueued    Status = "QUEUED"    // created and enqueued to a queue
	StatusRunning   Status = "RUNNING"   // claimed
	StatusRetrying  Status = "RETRYING"  // failed, waiting for its next try
	StatusSucceeded Status = "SUCCEEDED" // done
	StatusDead      Status = "DEAD"      // attempts used up, or no retry can cure it
	StatusSuspended Status = "SUSPENDED" // waits for a person
	StatusCancelled Status = "CANCELLED" // withdrawn
)

// Statuses lists every state that a row can have.
func Statuses() []Status {
	return []Status{
		StatusQueued, StatusRunning, StatusRetrying, StatusSucceeded,
		StatusDead, StatusSuspended, StatusCancelled,
	}
}

// Terminal reports whether nothing more happens to the task by itself.
func (s Status) Terminal() bool {
	return s == StatusSucceeded || s == StatusDead || s == StatusCancelled
}

// Reason says in one word why a status changed; it is the reason column of a transition.
type Reason string

// The reasons.
const (
	ReasonAccepted   Reason = "ACCEPTED"
	ReasonClaimed    Reason = "CLAIMED"
	ReasonTakeover   Reason = "TAKEOVER"    // the lease before had expired
	ReasonDone       Reason = "DONE"        // the work ended well
	ReasonFailed     Reason = "FAILED"      // one attempt failed
	ReasonExhausted  Reason = "EXHAUSTED"   // the last attempt failed
	ReasonPermanent  Reason = "PERMANENT"   // no retry can cure it
	ReasonStalled    Reason = "STALLED"     // no progress within the stage's limit; counts as a failure
	ReasonThrottled  Reason = "THROTTLED"   // a service asked to wait; counts no attempt
	ReasonHandedBack Reason = "HANDED_BACK" // its holder stopped
	ReasonRetryNow   Reason = "RETRY_NOW"   // a person does not want to wait
	ReasonCancelled  Reason = "CANCELLED"   // a person withdrew it
	ReasonDeleted    Reason = "DELETED"     // its document was deleted
	ReasonSuperseded Reason = "SUPERSEDED"  // a later upload is visible
	ReasonSuspended  Reason = "SUSPENDED"   // an operator, or its worker, wants a person to look
	ReasonResumed    Reason = "RESUMED"     // SUSPENDED → QUEUED
	ReasonReplayed   Reason = "REPLAYED"    // DEAD or CANCELLED → QUEUED
	ReasonCrashLimit Reason = "crash_limit" // took its process down too often (contract §2)
)

// move is one legal edge of the graph with the reasons that may label it.
type move struct {
	from, to Status
	reasons  []Reason
}

// moves is contract §2's table.
var moves = []move{
	{StatusNone, StatusQueued, []Reason{ReasonAccepted}},
	{StatusQueued, StatusRunning, []Reason{ReasonClaimed}},
	{StatusRetrying, StatusRunning, []Reason{ReasonClaimed}},
	{StatusRunning, StatusRunning, []Reason{ReasonTakeover}},
	{StatusRunning, StatusSucceeded, []Reason{ReasonDone}},
	{StatusRunning, StatusRetrying, []Reason{ReasonFailed, ReasonStalled, ReasonThrottled}},
	{StatusRunning, StatusDead, []Reason{ReasonExhausted, ReasonPermanent, ReasonCrashLimit}},
	{StatusRunning, StatusSuspended, []Reason{ReasonSuspended}},
	{StatusRunning, StatusQueued, []Reason{ReasonHandedBack}},
	{StatusRetrying, StatusRetrying, []Reason{ReasonRetryNow}},
	{StatusQueued, StatusSuspended, []Reason{ReasonSuspended}},
	{StatusRetrying, StatusSuspended, []Reason{ReasonSuspended}},
	{StatusQueued, StatusCancelled, withdrawals},
	{StatusRetrying, StatusCancelled, withdrawals},
	{StatusRunning, StatusCancelled, withdrawals},
	{StatusSuspended, StatusCancelled, withdrawals},
	{StatusSuspended, StatusQueued, []Reason{ReasonResumed}},
	{StatusDead, StatusQueued, []Reason{ReasonReplayed}},
	{StatusCancelled, StatusQueued, []Reason{ReasonReplayed}},
}

// withdrawals are the reasons for which a task is cancelled.
var withdrawals = []Reason{ReasonCancelled, ReasonDeleted, ReasonSuperseded}

// Legal reports whether a task may go from one state to another for this reason.
func Legal(from, to Status, reason Reason) bool {
	return slices.ContainsFunc(moves, func(m move) bool { return m.from == from && m.to == to && slices.Contains(m.reasons, reason) })
}
