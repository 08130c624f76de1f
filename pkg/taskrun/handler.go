// Package taskrun runs tasks: it claims them in batches, from deliveries and from the table,
// keeps their leases, watches that they move, and finishes them in batches (design D2–D6, D15).
//
// It knows nothing of documents; a Handler does the work and writes what belongs to it into the same transactions.
// The one entry is Runner.Run.
//
// The order of effects is claim → run → finish (one transaction) → DLQ entry if DEAD → acknowledgement → DLQ mark.
// What is left when the process dies in between, and who mends it:
//
//	after reading, before the claim    row QUEUED, entry pending      read watermark sweep enqueues it again; reconciling copies the entry
//	after the claim                    row RUNNING, lease runs out    recovery takes it over: one crash counted
//	after a reservation                row as it was, reserved        the reservation runs out; any claim or sweep
//	after the finish, before its ack   row terminal, entry pending    reconciling acknowledges
//	after RETRYING                     row RETRYING, entry pending    recovery runs it when due, on that entry
//	after DEAD, before the DLQ entry   row DEAD, entry owed           the DLQ sweep, or whoever meets it: entry, ack, mark
//	after the DLQ entry, before mark   row DEAD, entry owed           the DLQ sweep: a second entry of the same fence
//	after a hand-back, before its copy row QUEUED                     read watermark sweep
//	after a promise, before its entry  row QUEUED                     read watermark sweep, later each time
package taskrun

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Job is one claimed task in work.
type Job struct {
	Task   taskstate.Task // as claimed: Fence and LeaseOwner are this claim's
	Token  taskstate.Token
	Alone  bool                     // the process runs nothing beside it, from its beginning to its end
	Report func(taskstate.Progress) // proves that work moves: a stage that reports nothing for its stall limit is failed; safe for concurrent use, never blocks
}

// EffectKey is the idempotency key of an effect outside the database: the task and the fence of this claim, which grows.
func (j Job) EffectKey() string { return j.Task.ID + ":" + strconv.FormatInt(j.Token.Fence, 10) }

// Result is how a job ended. Exactly one of Err and success: with Err nil the task succeeded.
type Result struct {
	Err     error           // classified by Handler.Classify; context errors after a stop mean "hand back"
	Payload any             // what Decider.Decide and Handler.OnTransition need to know of a success; may be nil
	Output  json.RawMessage // the task's result column; may be nil
	Message string          // for the audit row
}

// Done is a job that ended well, in a finish transaction.
type Done struct {
	Task   taskstate.Task // as locked now
	Holder taskstate.Holder
	Result Result
}

// Description is what people are told about a type of task.
type Description struct {
	Noun   string            // what it is about, such as "document"
	Stages []taskstate.Stage // in their order, without StageNone and StageDone; empty: StageRun alone
	Unit   string            // what its progress counts, such as "segments"; empty: nothing
	// Outside: the effect of a run is outside the database, where nothing can be rolled back. It carries Job.EffectKey, so
	// that the outside knows a run that was repeated and refuses one that is out of date.
	Outside bool
}

// Handler is what a sort of task does. All methods are safe for concurrent use.
type Handler interface {
	// Describe says what people are told about tasks of this type; always the same.
	Describe() Description
	// Handle does the work. It returns soon after ctx ends: the claim was lost (context.Cause is taskstate.ErrLost),
	// the process stops, or the stage stalled. An error that is taskstate.ErrUnavailable or ErrOutcomeUnknown counts nothing:
	// Handle is called again for the same claim until the database is back. One that is ErrProcess counts nothing either:
	// the task is handed back, and so it is with ErrElsewhere. A panic is recovered by the runner and counted as a failure.
	Handle(ctx context.Context, job Job) Result
	// Classify turns an error of Handle into what the state machine needs.
	Classify(err error) taskstate.Failure
	// OnTransition writes what belongs to changes of any kind (claims, failures, deaths, successes, hand-backs) in their transaction.
	// changed has changes of status only, all of this kind's type; reservations and marks are not among them.
	// payloads has Result.Payload by task id for the jobs that ended well.
	OnTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, payloads map[string]any) error
}

// Decider is a Handler for whose tasks success is not all that may follow from a run that ended well.
type Decider interface {
	Handler
	// Decide decides on jobs that ended well, inside their finish transaction; dones are those whose claim still holds.
	// It may read and lock documents through tx, in id order. Usually taskstate.Succeed or taskstate.Withdraw.
	Decide(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, dones []Done) ([]taskstate.Decision, error)
}
