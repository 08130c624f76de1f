// Package taskrun runs tasks: it claims them in batches, from deliveries and from the table,
// keeps their leases, watches that they move, and finishes them in batches (design D2–D6, D15).
//
// It knows nothing of documents; a Kind does the work and writes what belongs to it into the same transactions.
package taskrun

import (
	"context"
	"encoding/json"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Job is one claimed task in work.
type Job struct {
	Task   taskstate.Task // as claimed: Fence and LeaseOwner are this claim's
	Token  taskstate.Token
	Report func(taskstate.Progress) // keeps the lease: a stage that reports nothing for its stall limit is failed; never blocks
}

// Result is how a job ended. Exactly one of Err and success: with Err nil the task succeeded.
type Result struct {
	Err     error           // classified by Kind.Classify; context errors after a stop mean "hand back"
	Payload any             // what Kind.Decide and Kind.Also need to know of a success; may be nil
	Output  json.RawMessage // the task's result column; may be nil
	Message string          // for the audit row
}

// Done is a job that ended well, in a finish transaction.
type Done struct {
	Task   taskstate.Task // as locked now
	Holder taskstate.Holder
	Result Result
}

// Kind is what a sort of task does. All methods are safe for concurrent use.
type Kind interface {
	// Run does the work. It returns soon after ctx ends: the claim was lost (context.Cause is taskstate.ErrLost),
	// the process stops, or the stage stalled. A panic is recovered by the runner and counted as a failure.
	Run(ctx context.Context, job Job) Result
	// Classify turns an error of Run into what the state machine needs.
	Classify(err error) taskstate.Failure
	// Decide decides on jobs that ended well, inside their finish transaction; dones are those whose claim still holds.
	// It may read and lock documents through tx, in id order. Usually taskstate.Succeed or taskstate.Withdraw.
	Decide(ctx context.Context, tx taskstate.Tx, m taskstate.Moment, dones []Done) ([]taskstate.Decision, error)
	// Also writes what belongs to changes of any kind (claims, failures, deaths, successes) in their transaction.
	// payloads has Result.Payload by task id for the jobs that ended well.
	Also(ctx context.Context, tx taskstate.Tx, m taskstate.Moment, changed []taskstate.Decision, payloads map[string]any) error
}
