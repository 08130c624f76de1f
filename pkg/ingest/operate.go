package ingest

import (
	"context"
	"fmt"
	"slices"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Retry makes a RETRYING task due and replays a DEAD or CANCELLED one; it acts at once and returns the task afterwards.
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, ErrReplaySuperseded, ErrDocumentDeleted, taskstate.ErrUnavailable.
func (a *App) Retry(ctx context.Context, c Caller, id string) (taskstate.Task, error) {
	return a.operate(ctx, c, id, "retry", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Retry(m, t, c.Scope.Actor())
	})
}

// Cancel withdraws a task at once, whoever holds it.
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (a *App) Cancel(ctx context.Context, c Caller, id string) (taskstate.Task, error) {
	return a.operate(ctx, c, id, "cancel", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, t, c.Scope.Actor(), taskstate.ReasonCancelled, "cancelled by "+c.Scope.Actor().String())
	})
}

// Suspend holds a task for a person (operators).
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (a *App) Suspend(ctx context.Context, c Caller, id, why string) (taskstate.Task, error) {
	return a.operate(ctx, c, id, "suspend", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Suspend(m, t, c.Scope.Actor(), why)
	})
}

// Resume puts a SUSPENDED task back (operators).
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (a *App) Resume(ctx context.Context, c Caller, id, why string) (taskstate.Task, error) {
	return a.operate(ctx, c, id, "resume", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Resume(m, t, c.Scope.Actor(), why)
	})
}

// operate applies a person's wish to one task with all that belongs to it.
func (a *App) operate(ctx context.Context, c Caller, id, verb string, f func(taskstate.DBClock, taskstate.Task) taskstate.Decision) (taskstate.Task, error) {
	guarded := func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		if err := c.guard(t); err != nil {
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
func (a *App) Operate(ctx context.Context, c Caller, ids []string, f func(taskstate.DBClock, taskstate.Task) taskstate.Decision) ([]taskstate.Outcome, error) {
	var replays map[string]replayed // of the run of Decide whose transaction commits
	outcomes, err := a.d.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: c.Scope,
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			out := make([]taskstate.Decision, len(tasks))
			for i, t := range tasks {
				out[i] = f(m, t)
			}
			var err error
			replays, err = a.judgeReplays(ctx, tx, tasks, out)
			return out, err
		},
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
			if err := a.onTransition(ctx, tx, m, changed); err != nil {
				return err
			}
			if err := a.openReplays(ctx, tx, m, changed, replays); err != nil || len(changed) == 0 {
				return err
			}
			return c.note(ctx, tx, m)
		},
	})
	if err != nil {
		return nil, err
	}
	crash.Point("operate.after_row")
	a.announceChanges(ctx, outcomes)
	return outcomes, nil
}

// announceChanges wakes who waits for changed tasks, the sweeper, and publishes those that became QUEUED.
func (a *App) announceChanges(ctx context.Context, outcomes []taskstate.Outcome) {
	var queued []taskstate.Task
	var changed []string
	for _, o := range outcomes {
		if o.Change == nil || o.Err != nil {
			continue
		}
		if o.After.Status == taskstate.StatusQueued && o.Before.Status != taskstate.StatusQueued {
			queued = append(queued, o.After)
			continue
		}
		changed = append(changed, o.After.ID)
	}
	if len(changed) > 0 {
		a.d.Changed(changed...)
	}
	a.announce(ctx, queued)
}

// replayed is the version that a replay goes on from.
type replayed struct {
	document, base, file, title string
	upload, no                  int64 // no: of the new version
}

// judgeReplays turns replays that have no document, file or place any more into refusals, and returns the others by task.
func (a *App) judgeReplays(ctx context.Context, tx taskstate.Tx, locked []taskstate.Task, out []taskstate.Decision) (map[string]replayed, error) {
	var tasks []string
	for _, d := range out {
		if isReplay(d) {
			tasks = append(tasks, d.TaskID)
		}
	}
	if len(tasks) == 0 {
		return nil, nil
	}
	documents, err := a.lockDocumentsOf(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	last, err := a.lastVersions(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	next := map[string]int64{}
	for i, d := range out {
		if !isReplay(d) {
			continue
		}
		if locked[i].DocumentID == "" {
			continue // another kind's task
		}
		v := last[d.TaskID] // the zero value when nothing is left of the document
		if refusal := refuseReplay(documents, v); refusal != nil {
			out[i] = taskstate.Decision{TaskID: d.TaskID, Answer: taskstate.AnswerRefused, Err: refusal}
			delete(last, d.TaskID)
			continue
		}
		if next[v.document] == 0 {
			next[v.document] = documents[v.document].lastNo
		}
		next[v.document]++
		v.no = next[v.document]
		last[d.TaskID] = v
	}
	return last, nil
}

// isReplay reports whether a decision puts a DEAD or CANCELLED task back.
func isReplay(d taskstate.Decision) bool {
	return d.Change != nil && d.Change.Reason == taskstate.ReasonReplayed
}

// refuseReplay returns why a replay cannot be, or nil.
func refuseReplay(documents map[string]lockedDocument, v replayed) error {
	d, found := documents[v.document]
	switch {
	case !found || d.deleted:
		return ErrDocumentDeleted
	case d.visibleUpload > v.upload:
		return ErrReplaySuperseded
	case v.file == "":
		return ErrDocumentDeleted
	}
	return nil
}

// lastVersions reads the newest version of each task, by task.
func (a *App) lastVersions(ctx context.Context, tx taskstate.Tx, tasks []string) (map[string]replayed, error) {
	rows, err := tx.QueryContext(ctx, a.q.List("VersionsOfTasks", len(tasks)), args(tasks)...)
	if err != nil {
		return nil, fmt.Errorf("read versions to replay: %w", err)
	}
	defer func() { _ = rows.Close() }()
	out := map[string]replayed{}
	for rows.Next() {
		var task string
		var v replayed
		if err := rows.Scan(&task, &v.document, &v.base, &v.upload, &v.title, &v.file); err != nil {
			return nil, fmt.Errorf("read versions to replay: %w", err)
		}
		out[task] = v // the rows come in the order of their no
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read versions to replay: %w", err)
	}
	return out, nil
}

// openReplays makes the new version of each replayed task, with the upload's number of the one before (design D8).
func (a *App) openReplays(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, replays map[string]replayed) error {
	var params []any
	n := 0
	highest := map[string]int64{}
	for _, d := range changed {
		v, ok := replays[d.TaskID]
		if !ok || !isReplay(d) {
			continue
		}
		params = append(params, newID(), v.document, v.base, d.TaskID, v.file, v.no, v.upload, string(versionBuilding), v.title, m.Now, m.Now, never())
		highest[v.document] = max(highest[v.document], v.no)
		n++
	}
	if n == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, a.q.Rows("VersionsInsert", n), params...); err != nil {
		return fmt.Errorf("open versions for replays: %w", err)
	}
	documents := make([]string, 0, len(highest))
	for id := range highest {
		documents = append(documents, id)
	}
	slices.Sort(documents)
	for _, id := range documents {
		if _, err := tx.ExecContext(ctx, a.q.Get("DocumentNext"), highest[id], id); err != nil {
			return fmt.Errorf("count versions of document %s: %w", id, err)
		}
	}
	return nil
}

// Refusals returns which tasks a replay would be refused for now, and why: *taskstate.RefusedError, ErrReplaySuperseded or
// ErrDocumentDeleted. What it leaves out can be replayed, or does not exist. It locks the rows for a moment and changes nothing.
func (a *App) Refusals(ctx context.Context, s taskstate.Scope, ids []string) (map[string]error, error) {
	var refused map[string]error // of the run of Decide whose transaction commits
	_, err := a.d.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: s,
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			out := make([]taskstate.Decision, len(tasks))
			for i, t := range tasks {
				out[i] = taskstate.Replay(m, t, s.Actor(), "")
			}
			_, err := a.judgeReplays(ctx, tx, tasks, out)
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
