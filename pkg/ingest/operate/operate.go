package operate

import (
	"context"
	"fmt"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/submit"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Operator acts on tasks for people. It is safe for concurrent use.
type Operator struct {
	d       ingest.Deps
	cat     *catalog.Catalog
	deliver *submit.Deliverer
}

// New makes an Operator.
func New(d ingest.Deps, cat *catalog.Catalog, deliver *submit.Deliverer) *Operator {
	return &Operator{d: d, cat: cat, deliver: deliver}
}

// Retry makes a RETRYING task due and replays a DEAD or CANCELLED one; it acts at once and returns the task afterwards.
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, ErrReplaySuperseded, ErrDocumentDeleted, taskstate.ErrUnavailable.
func (a *Operator) Retry(ctx context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
	return a.operate(ctx, c, id, "retry", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Retry(m, t, c.Scope.Actor())
	})
}

// Cancel withdraws a task at once, whoever holds it.
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (a *Operator) Cancel(ctx context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
	return a.operate(ctx, c, id, "cancel", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, t, c.Scope.Actor(), taskstate.ReasonCancelled, "cancelled by "+c.Scope.Actor().String())
	})
}

// Suspend holds a task for a person (operators).
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (a *Operator) Suspend(ctx context.Context, c ingest.Caller, id, why string) (taskstate.Task, error) {
	return a.operate(ctx, c, id, "suspend", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Suspend(m, t, c.Scope.Actor(), why)
	})
}

// Resume puts a SUSPENDED task back (operators).
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (a *Operator) Resume(ctx context.Context, c ingest.Caller, id, why string) (taskstate.Task, error) {
	return a.operate(ctx, c, id, "resume", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Resume(m, t, c.Scope.Actor(), why)
	})
}

// operate applies a person's wish to one task with all that belongs to it.
func (a *Operator) operate(ctx context.Context, c ingest.Caller, id, verb string, f func(taskstate.DBClock, taskstate.Task) taskstate.Decision) (taskstate.Task, error) {
	guarded := func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		if err := c.Allows(t); err != nil {
			return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerRefused, Err: err}
		}
		return f(m, t)
	}
	outcomes, err := a.Operate(ctx, c, []string{id}, guarded)
	if err != nil {
		return taskstate.Task{}, fmt.Errorf("%s task %s: %w", verb, id, err)
	}
	o := outcomes[0]
	switch {
	case o.Before.ID == "":
		return taskstate.Task{}, taskstate.ErrNotFound
	case o.Decision.Err != nil:
		return taskstate.Task{}, o.Decision.Err
	case o.Err != nil:
		return taskstate.Task{}, fmt.Errorf("%s task %s: %w", verb, id, o.Err)
	}
	return o.After, nil
}

// Operate decides on many tasks by f, refuses replays whose document or place is gone, and writes versions and documents with the changes.
// Tasks that became QUEUED are announced after the commit. Bulk replays count refused ones as skipped.
// The caller's note is written when something changed; its guard is not asked here.
func (a *Operator) Operate(ctx context.Context, c ingest.Caller, ids []string, f func(taskstate.DBClock, taskstate.Task) taskstate.Decision) ([]taskstate.Outcome, error) {
	var replays map[string]catalog.Replayed // of the run of Decide whose transaction commits
	outcomes, err := a.d.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: c.Scope,
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			out := make([]taskstate.Decision, len(tasks))
			for i, t := range tasks {
				out[i] = f(m, t)
			}
			var err error
			replays, err = a.cat.JudgeReplays(ctx, tx, tasks, out)
			return out, err
		},
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
			if err := a.cat.OnTransition(ctx, tx, m, changed); err != nil {
				return err
			}
			if err := a.cat.OpenReplays(ctx, tx, m, changed, replays); err != nil || len(changed) == 0 {
				return err
			}
			return c.WriteNote(ctx, tx, m)
		},
	})
	if err != nil {
		return nil, err
	}
	crash.Point("operate.after_row")
	a.deliver.AnnounceChanges(ctx, outcomes)
	return outcomes, nil
}

// Refusals returns which tasks a replay would be refused for now, and why: *taskstate.RefusedError, ErrReplaySuperseded or
// ErrDocumentDeleted. What it leaves out can be replayed, or does not exist. It locks the rows for a moment and changes nothing.
func (a *Operator) Refusals(ctx context.Context, s taskstate.Scope, ids []string) (map[string]error, error) {
	var refused map[string]error // of the run of Decide whose transaction commits
	_, err := a.d.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: s,
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			out := make([]taskstate.Decision, len(tasks))
			for i, t := range tasks {
				out[i] = taskstate.Replay(m, t, s.Actor(), "")
			}
			_, err := a.cat.JudgeReplays(ctx, tx, tasks, out)
			refused = map[string]error{}
			for i, d := range out {
				if d.Err != nil {
					refused[d.TaskID] = d.Err
				}
				out[i] = taskstate.Decision{TaskID: d.TaskID, Answer: taskstate.AnswerKept}
			}
			return out, err
		},
	})
	return refused, err
}
