package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Restorer is who makes rows again that were lost with the database (design D19).
func Restorer() taskstate.Actor {
	return taskstate.Actor{Kind: taskstate.ActorSystem, Name: "restore"}
}

// Restore makes the rows of lost tasks again, with the ids and idempotency keys that they had: an error for each, nil also for a row that
// is there. Errors: ErrKeyReused (another task has its key now), taskstate.ErrUnavailable, taskstate.ErrOutcomeUnknown.
func (s *Service) Restore(ctx context.Context, lost []taskstate.Task) []error {
	errs := make([]error, len(lost))
	made, err := s.restore(ctx, lost)
	for i, t := range lost {
		if errs[i] = err; err != nil && Splits(err) {
			var one []taskstate.Task
			one, errs[i] = s.restore(ctx, []taskstate.Task{t})
			made = append(made, one...)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("restore task %s: %w", t.ID, errs[i])
		}
	}
	s.Announce(ctx, made)
	return errs
}

// restore makes those rows that are missing, in one transaction.
func (s *Service) restore(ctx context.Context, lost []taskstate.Task) ([]taskstate.Task, error) {
	missing, err := s.Missing(ctx, lost)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	made, err := s.d.Store.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) (out []taskstate.NewTask, err error) {
		for _, t := range missing {
			out = append(out, taskstate.NewTask{Task: t, Actor: Restorer()})
		}
		return out, nil
	})
	if len(lost) > 1 || !errors.Is(err, taskstate.ErrDuplicateKey) && !errors.Is(err, taskstate.ErrUnique) {
		return made, err
	}
	if missing, err = s.Missing(ctx, lost); len(missing) > 0 { // else another process has made it meanwhile
		err = ErrKeyReused
	}
	return nil, err
}

// Missing returns those tasks that have no row.
func (s *Service) Missing(ctx context.Context, lost []taskstate.Task) (out []taskstate.Task, err error) {
	ids := make([]string, len(lost))
	for i, t := range lost {
		ids[i] = t.ID
	}
	found, err := s.d.Store.GetMany(ctx, taskstate.System(), ids)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, t := range found {
		there[t.ID] = true
	}
	for _, t := range lost {
		if !there[t.ID] {
			out = append(out, t)
		}
	}
	return out, nil
}
