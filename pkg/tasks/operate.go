package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Wish decides on a task that a person wants to change; it is one of taskstate's functions with its arguments.
type Wish = func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision

// Retry makes a RETRYING task due and replays a DEAD or CANCELLED one; it acts at once and returns the task afterwards.
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, what a Replayer refuses with, taskstate.ErrUnavailable.
func (s *Service) Retry(ctx context.Context, c Caller, id string) (taskstate.Task, error) {
	return s.operate(ctx, c, id, "retry", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Retry(m, t, c.Scope.Actor())
	})
}

// Cancel withdraws a task at once, whoever holds it.
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (s *Service) Cancel(ctx context.Context, c Caller, id string) (taskstate.Task, error) {
	return s.operate(ctx, c, id, "cancel", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, t, c.Scope.Actor(), taskstate.ReasonCancelled, "cancelled by "+c.Scope.Actor().String())
	})
}

// Suspend keeps a task for a person (operators).
// Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (s *Service) Suspend(ctx context.Context, c Caller, id, why string) (taskstate.Task, error) {
	return s.operate(ctx, c, id, "suspend", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Suspend(m, t, c.Scope.Actor(), why)
	})
}

// Resume puts a SUSPENDED task back (operators). One that is not, and of which RabbitMQ has no copy, stays as it is: the copy is tried
// again at once. Errors: taskstate.ErrNotFound, *taskstate.RefusedError, taskstate.ErrUnavailable.
func (s *Service) Resume(ctx context.Context, c Caller, id, why string) (taskstate.Task, error) {
	task, err := s.operate(ctx, c, id, "resume", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Resume(m, t, c.Scope.Actor(), why)
	})
	var refused *taskstate.RefusedError
	if !errors.As(err, &refused) {
		return task, err
	}
	switch tries, copyErr := s.copyNow(ctx, c, id); {
	case copyErr != nil:
		return taskstate.Task{}, fmt.Errorf("resume task %s: %w", id, copyErr)
	case !tries:
		return task, err
	}
	return s.d.Store.Get(ctx, c.Scope, id)
}

// operate applies a person's wish to one task with all that belongs to it.
func (s *Service) operate(ctx context.Context, c Caller, id, verb string, wish Wish) (taskstate.Task, error) {
	outcomes, err := s.Operate(ctx, c, []string{id}, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		if err := c.Allows(t); err != nil {
			return refusal(t, err)
		}
		return wish(m, t)
	})
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

// Operate decides on many tasks by wish, refuses replays that their type does not allow, and writes what belongs to the
// changes. Tasks that became QUEUED are announced after the commit. Bulk replays count refused ones as skipped.
// The caller's note is written when something changed; its guard is not asked here.
func (s *Service) Operate(ctx context.Context, c Caller, ids []string, wish Wish) ([]taskstate.Outcome, error) {
	return s.OperateAlso(ctx, c, ids, wish, nil)
}

// AlsoFunc writes beside changes, in their transaction, what follows from all that was decided in it. It runs again when the transaction
// is retried.
type AlsoFunc func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, decided []taskstate.Decision) error

// OperateAlso is Operate with more to write where something changed; also may be nil.
func (s *Service) OperateAlso(ctx context.Context, c Caller, ids []string, wish Wish, also AlsoFunc) ([]taskstate.Outcome, error) {
	var types map[string]string // of the run of Decide whose transaction commits, as the payloads
	var payloads map[string]any
	var decided []taskstate.Decision
	outcomes, err := s.d.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: c.Scope,
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, locked []taskstate.Task) ([]taskstate.Decision, error) {
			types = map[string]string{}
			out := make([]taskstate.Decision, len(locked))
			for i, t := range locked {
				out[i], types[t.ID] = wish(m, t), t.Type
			}
			var err error
			payloads, err = s.judgeReplays(ctx, tx, locked, out)
			decided = out
			return out, err
		},
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
			if err := taskrun.ByType(changed, types, func(typ string, of []taskstate.Decision) error {
				if t := s.d.Types[typ]; t != nil {
					return t.OnTransition(ctx, tx, m, of, payloads)
				}
				return nil
			}); err != nil || len(changed) == 0 {
				return err
			}
			if also != nil {
				if err := also(ctx, tx, m, decided); err != nil {
					return err
				}
			}
			return c.WriteNote(ctx, tx, m)
		},
	})
	if err != nil {
		return nil, err
	}
	crash.Point("operate.after_row")
	s.AnnounceChanges(ctx, outcomes)
	return outcomes, nil
}

// refusal says no to a change.
func refusal(t taskstate.Task, err error) taskstate.Decision {
	return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerRefused, Err: err}
}

// AnnounceChanges wakes who waits for changed tasks, and adds deliveries of those that became QUEUED.
func (s *Service) AnnounceChanges(ctx context.Context, outcomes []taskstate.Outcome) {
	var queued []taskstate.Task
	var changed []string
	for _, o := range outcomes {
		switch {
		case o.Change == nil || o.Err != nil:
		case o.After.Status == taskstate.StatusQueued && o.Before.Status != taskstate.StatusQueued:
			queued = append(queued, o.After)
		default:
			changed = append(changed, o.After.ID)
		}
	}
	if len(changed) > 0 {
		s.d.Changed(changed...)
	}
	s.Announce(ctx, queued)
}

// judgeReplays turns replays that their type does not allow into refusals, and returns what OnTransition needs to know of the others.
func (s *Service) judgeReplays(ctx context.Context, tx taskstate.Tx, locked []taskstate.Task, out []taskstate.Decision) (map[string]any, error) {
	replays := map[string][]taskstate.Task{}
	for i, d := range out {
		if d.Change != nil && d.Change.Reason == taskstate.ReasonReplayed {
			replays[locked[i].Type] = append(replays[locked[i].Type], locked[i])
		}
	}
	payloads, refused := map[string]any{}, map[string]error{}
	for _, typ := range slices.Sorted(maps.Keys(replays)) {
		r, ok := s.d.Types[typ].(Replayer)
		if !ok {
			continue
		}
		not, more, err := r.JudgeReplays(ctx, tx, replays[typ])
		if err != nil {
			return nil, err
		}
		maps.Copy(refused, not)
		maps.Copy(payloads, more)
	}
	for i, d := range out {
		if err := refused[d.TaskID]; err != nil {
			out[i] = refusal(locked[i], err)
		}
	}
	return payloads, nil
}

// Refusals returns which tasks a replay would be refused for now, and why: *taskstate.RefusedError, or what a Replayer says.
// What it leaves out can be replayed, or does not exist. It locks the rows for a moment and changes nothing.
func (s *Service) Refusals(ctx context.Context, scope taskstate.Scope, ids []string) (map[string]error, error) {
	var refused map[string]error // of the run of Decide whose transaction commits
	_, err := s.d.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: scope,
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, locked []taskstate.Task) ([]taskstate.Decision, error) {
			out := make([]taskstate.Decision, len(locked))
			for i, t := range locked {
				out[i] = taskstate.Replay(m, t, scope.Actor(), "")
			}
			_, err := s.judgeReplays(ctx, tx, locked, out)
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

// drainSince is since when the lease of a process may have ended that can be drained: as long as it is listed.
const drainSince = time.Hour

// Drain asks a process to take no more tasks, or with off to take some again (design D22); c's note is written with it. The process
// reads that with its next heartbeat. Errors: taskstate.ErrNotFound, ErrUnavailable, ErrOutcomeUnknown.
func (s *Service) Drain(ctx context.Context, c Caller, worker string, off bool) error {
	return s.store.Drain(ctx, worker, off, drainSince, c.WriteNote)
}
