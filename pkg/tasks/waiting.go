package tasks

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Waiting are tasks that wait for their time or for a person, each with a moment.
type Waiting struct {
	// Retry are tasks in RETRYING, with the time at which they are due.
	Retry map[string]time.Time
	// Suspended are those that suspendedLength counts: in SUSPENDED, with the time of their last change, and those without a copy, with that
	// of the last try to make one.
	Suspended map[string]time.Time
}

// waitingPage is how many rows one statement of Waiting reads.
const waitingPage = 200

// Waiting lists what waits, at most limit of each sort, those that changed last first. Error: taskstate.ErrUnavailable.
func (s *Service) Waiting(ctx context.Context, limit int) (w Waiting, err error) {
	counts, err := s.d.Store.Counts(ctx, taskstate.System(), "")
	if err != nil {
		return w, err
	}
	w.Retry, err = s.waiting(ctx, taskstate.StatusRetrying, counts, limit, func(t taskstate.Task) time.Time { return t.NextRetryAt })
	if err != nil {
		return w, err
	}
	w.Suspended, err = s.waiting(ctx, taskstate.StatusSuspended, counts, limit, func(t taskstate.Task) time.Time { return t.UpdatedAt })
	if err != nil {
		return w, err
	}
	var after *taskstate.Cursor
	for n := waitingPage; n == waitingPage && len(w.Suspended) < limit; {
		page, err := s.Uncopied(ctx, Caller{Scope: taskstate.System()}, after, waitingPage)
		if err != nil {
			return w, err
		}
		for _, u := range page {
			w.Suspended[u.Task.ID] = u.At
			after = &taskstate.Cursor{At: u.At, ID: u.Task.ID}
		}
		n = len(page)
	}
	return w, nil
}

// waiting lists the tasks of one status; where there are none it reads nothing.
func (s *Service) waiting(
	ctx context.Context, status taskstate.Status, counts map[taskstate.Status]int64, limit int, at func(taskstate.Task) time.Time,
) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	if counts[status] == 0 {
		return out, nil
	}
	q := taskstate.Query{Statuses: []taskstate.Status{status}, Sort: taskstate.SortUpdatedDesc, Limit: waitingPage}
	for len(out) < limit {
		page, err := s.d.Store.List(ctx, taskstate.System(), q)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tasks {
			out[t.ID] = at(t)
			q.After = &taskstate.Cursor{At: t.UpdatedAt, ID: t.ID}
		}
		if page.More != nil {
			q.After = page.More
		} else if len(page.Tasks) < q.Limit {
			return out, nil
		}
	}
	return out, nil
}
