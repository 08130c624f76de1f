package tasks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// quietRest is how long requests leave a silent queue alone when nothing else finds out that it answers again.
const quietRest = 30 * time.Second

// quietQueue remembers that the queue did not answer in time. Requests then add no deliveries: their rows are the promise
// (design D5). The receiver's loop tries with the newest of them, and its first success ends it.
type quietQueue struct {
	mu    sync.Mutex
	until time.Time
	late  chan []taskstate.Task
}

// leave reports whether a request leaves its deliveries to the sweep, or to the receiver's loop if that is free.
func (q *quietQueue) leave(now time.Time, tasks []taskstate.Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !now.Before(q.until) {
		return false
	}
	select {
	case q.late <- tasks:
	default:
	}
	return true
}

// set notes until when the queue is left alone; zero: it answers.
func (q *quietQueue) set(until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until = until
}

// Announce adds the deliveries of tasks that became QUEUED and wakes who waits for them.
// A delivery that could not be added is not lost: its row is the promise (design D5).
func (s *Service) Announce(ctx context.Context, tasks []taskstate.Task) {
	if len(tasks) == 0 {
		return
	}
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	s.d.Changed(ids...)
	if s.d.Publisher == nil {
		return
	}
	if s.quiet.leave(s.d.Clock(), tasks) {
		return // nobody waits for a queue that does not answer
	}
	s.publish(ctx, tasks)
}

// publish adds deliveries; a queue that does not answer in time is left alone for a while.
func (s *Service) publish(ctx context.Context, tasks []taskstate.Task) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.PublishTimeout)
	defer cancel()
	err := taskrun.Publish(ctx, s.d.Publisher, tasks)
	switch {
	case err == nil:
		s.quiet.set(time.Time{})
		return
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		s.quiet.set(s.d.Clock().Add(quietRest))
	}
	s.d.Log.DebugContext(ctx, "tasks: delivery not added, the sweep will", "tasks", len(tasks), "error", s.d.Redact(err.Error()))
}

// Late are deliveries that requests left because the queue did not answer.
func (s *Service) Late() <-chan []taskstate.Task { return s.quiet.late }

// AddLate adds what a request left, unless the process is about to end.
func (s *Service) AddLate(ctx context.Context, tasks []taskstate.Task) {
	if ctx.Err() == nil {
		s.publish(ctx, tasks)
	}
}
