package ingestfake

import (
	"context"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Move changes a task as a worker would: edit is run on the row, then a transition is written if the status changed.
// Watchers get the event.
func (s *Service) Move(id string, edit func(t *taskstate.Task)) taskstate.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.move(id, taskstate.ReasonClaimed, taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"}, "", edit)
}

func (s *Service) move(id string, r taskstate.Reason, a taskstate.Actor, message string, edit func(t *taskstate.Task)) taskstate.Task {
	t := s.tasks[id]
	from := t.Status
	edit(&t)
	t.UpdatedAt = s.tick()
	s.tasks[id] = t
	if t.Status != from {
		s.note(id, from, t.Status, r, a, message)
	}
	s.tell(t)
	return t
}

// tell sends the present state to the task's watchers; a terminal one ends them.
func (s *Service) tell(t taskstate.Task) {
	e := ingest.TaskEvent{Task: t, TransitionID: s.lastID(t.ID), Terminal: t.Status.Terminal()}
	for _, w := range s.watchers[t.ID] {
		select {
		case w.out <- e:
		case <-w.ctx.Done():
		}
		if e.Terminal {
			close(w.out)
		}
	}
	if e.Terminal {
		delete(s.watchers, t.ID)
	}
}

func (s *Service) lastID(id string) int64 {
	log := s.log[id]
	return log[len(log)-1].ID
}

// task finds a task in the caller's scope.
func (s *Service) task(c ingest.Caller, id string) (taskstate.Task, error) {
	t, ok := s.tasks[id]
	if !ok || !c.Scope.All() && t.UserID != c.Scope.UserID {
		return taskstate.Task{}, taskstate.ErrNotFound
	}
	return t, nil
}

// Task returns one task.
func (s *Service) Task(_ context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
	end, err := s.begin("Task", c)
	defer end()
	if err != nil {
		return taskstate.Task{}, err
	}
	return s.task(c, id)
}

// Tasks lists by time of change or creation.
func (s *Service) Tasks(_ context.Context, c ingest.Caller, q taskstate.Query) ([]taskstate.Task, error) {
	end, err := s.begin("Tasks", c)
	defer end()
	s.lastQuery = q
	if err != nil {
		return nil, err
	}
	var out []taskstate.Task
	for _, t := range s.tasks {
		if _, err := s.task(c, t.ID); err != nil || len(q.Statuses) > 0 && !slices.Contains(q.Statuses, t.Status) {
			continue
		}
		if q.KnowledgeBase == "" || q.KnowledgeBase == t.KnowledgeBase {
			out = append(out, t)
		}
	}
	key := func(t taskstate.Task) taskstate.Cursor { return taskstate.Cursor{At: t.UpdatedAt, ID: t.ID} }
	if q.Sort == taskstate.SortCreated || q.Sort == taskstate.SortCreatedDesc {
		key = func(t taskstate.Task) taskstate.Cursor { return taskstate.Cursor{At: t.CreatedAt, ID: t.ID} }
	}
	return page(out, key, strings.HasPrefix(string(q.Sort), "-"), q.After, q.Limit), nil
}

// page sorts rows by their key and cuts the page after a cursor.
func page[R any](rows []R, key func(R) taskstate.Cursor, desc bool, after *taskstate.Cursor, limit int) []R {
	less := func(a, b taskstate.Cursor) int {
		order := a.At.Compare(b.At)
		if order == 0 {
			order = strings.Compare(a.ID, b.ID)
		}
		if desc {
			order = -order
		}
		return order
	}
	slices.SortFunc(rows, func(a, b R) int { return less(key(a), key(b)) })
	var out []R
	for _, r := range rows {
		if (after == nil || less(key(r), *after) > 0) && len(out) < limit {
			out = append(out, r)
		}
	}
	return out
}

// Transitions returns a part of the log.
func (s *Service) Transitions(_ context.Context, c ingest.Caller, id string, after int64, limit int) ([]taskstate.Transition, error) {
	end, err := s.begin("Transitions", c)
	defer end()
	if err != nil {
		return nil, err
	}
	if _, err := s.task(c, id); err != nil {
		return nil, err
	}
	var out []taskstate.Transition
	for _, t := range s.log[id] {
		if t.ID > after && len(out) < limit {
			out = append(out, t)
		}
	}
	return out, nil
}

// guarded asks the caller's condition.
func guarded(c ingest.Caller, current any) error {
	if c.Guard == nil {
		return nil
	}
	return c.Guard(current)
}

// noted writes the caller's note; there is no transaction to write it in.
func (s *Service) noted(c ingest.Caller) error {
	if c.Note == nil {
		return nil
	}
	return c.Note(context.Background(), nil, taskstate.DBClock{Now: s.now})
}

// act is a person's step by the state machine's own rules of refusal.
func (s *Service) act(method string, c ingest.Caller, id string, decide func(taskstate.DBClock, taskstate.Task) taskstate.Decision) (taskstate.Task, error) {
	end, err := s.begin(method, c)
	defer end()
	if err != nil {
		return taskstate.Task{}, err
	}
	t, err := s.task(c, id)
	if err != nil {
		return t, err
	}
	if err := guarded(c, t); err != nil {
		return t, err
	}
	d := decide(taskstate.DBClock{Now: s.now}, t)
	if d.Err != nil {
		return t, d.Err
	}
	if err := s.noted(c); err != nil {
		return t, err
	}
	return s.move(id, d.Change.Reason, d.Change.Actor, d.Change.Message, func(t *taskstate.Task) {
		t.Status, t.AttemptCount = d.Change.To, d.Change.AttemptCount
	}), nil
}

// Retry makes a task due.
func (s *Service) Retry(_ context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
	return s.act("Retry", c, id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Retry(m, t, c.Scope.Actor())
	})
}

// Cancel withdraws a task.
func (s *Service) Cancel(_ context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
	return s.act("Cancel", c, id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, t, c.Scope.Actor(), taskstate.ReasonCancelled, "cancelled")
	})
}

// Suspend holds a task.
func (s *Service) Suspend(_ context.Context, c ingest.Caller, id, why string) (taskstate.Task, error) {
	return s.act("Suspend", c, id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Suspend(m, t, c.Scope.Actor(), why)
	})
}

// Resume lets a task go on.
func (s *Service) Resume(_ context.Context, c ingest.Caller, id, why string) (taskstate.Task, error) {
	return s.act("Resume", c, id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Resume(m, t, c.Scope.Actor(), why)
	})
}

// Explain tells what it knows.
func (s *Service) Explain(_ context.Context, c ingest.Caller, id string) (ingest.Explanation, error) {
	end, err := s.begin("Explain", c)
	defer end()
	if err != nil {
		return ingest.Explanation{}, err
	}
	t, err := s.task(c, id)
	if err != nil {
		return ingest.Explanation{}, err
	}
	return ingest.Explanation{
		Task: t, Words: "The task is " + string(t.Status) + ".", Holder: t.LeaseOwner, HeldUntil: t.LeaseExpiresAt,
		Delivery: t.Delivery, Next: "a worker takes it", NextAt: s.now, Now: s.now, LastChanges: slices.Clone(s.log[id]),
	}, nil
}

// Watch follows a task.
func (s *Service) Watch(ctx context.Context, c ingest.Caller, id string, after int64) (<-chan ingest.TaskEvent, error) {
	end, err := s.begin("Watch", c)
	defer end()
	if err != nil {
		return nil, err
	}
	t, err := s.task(c, id)
	if err != nil {
		return nil, err
	}
	out := make(chan ingest.TaskEvent, 64)
	for _, tr := range s.log[id] {
		if after > 0 && tr.ID > after && tr.ID < s.lastID(id) {
			past := t
			past.Status, past.UpdatedAt = tr.To, tr.CreatedAt
			out <- ingest.TaskEvent{Task: past, TransitionID: tr.ID}
		}
	}
	out <- ingest.TaskEvent{Task: t, TransitionID: s.lastID(id), Terminal: t.Status.Terminal()}
	if t.Status.Terminal() {
		close(out)
	} else {
		s.watchers[id] = append(s.watchers[id], &watcher{ctx: ctx, out: out})
	}
	s.watching <- id
	return out, nil
}

// Stats counts.
func (s *Service) Stats(_ context.Context, c ingest.Caller) (ingest.Stats, error) {
	end, err := s.begin("Stats", c)
	defer end()
	out := ingest.Stats{Tasks: map[taskstate.Status]int64{}, Recent: map[taskstate.Status]int64{}, StreamLength: 7}
	for _, t := range s.tasks {
		out.Tasks[t.Status]++
	}
	return out, err
}
