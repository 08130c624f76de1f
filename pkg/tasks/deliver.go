package tasks

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// quietRest is how long requests leave a silent queue alone when nothing else finds out that it answers again.
const quietRest = 30 * time.Second

// quietQueue remembers that the queue did not answer in time. Requests then add no deliveries: their rows are the promise
// (design D5). The receiver's loop tries with the newest of them, and its first success ends it.
type quietQueue struct {
	until atomic.Int64 // when it is asked again, in nanoseconds since 1970; 0: it answers
	late  chan []taskstate.Task
}

// leave reports whether a request leaves its deliveries to the sweep, or to the receiver's loop if that is free.
func (q *quietQueue) leave(now time.Time, tasks []taskstate.Task) bool {
	if now.UnixNano() >= q.until.Load() {
		return false
	}
	select {
	case q.late <- tasks:
	default:
	}
	return true
}

// Announce adds the deliveries of tasks that became QUEUED and wakes who waits for them.
// A delivery that could not be added is not lost: its row is the promise (design D5). It reports whether any waits for the queue.
func (s *Service) Announce(ctx context.Context, tasks []taskstate.Task) (waits bool) {
	if len(tasks) == 0 {
		return false
	}
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	s.d.Changed(ids...)
	if s.d.Publisher == nil {
		return false
	}
	if s.quiet.leave(s.d.Clock(), tasks) {
		return true // nobody waits for a queue that does not answer
	}
	return !s.publish(ctx, tasks)
}

// publish adds deliveries and reports whether it did; a queue that does not answer in time is left alone for a while.
func (s *Service) publish(ctx context.Context, tasks []taskstate.Task) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.PublishTimeout)
	defer cancel()
	err := taskrun.Publish(ctx, s.d.Publisher, tasks)
	switch {
	case err == nil:
		s.quiet.until.Store(0)
		return true
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		s.quiet.until.Store(s.d.Clock().Add(quietRest).UnixNano())
	}
	s.d.Log.DebugContext(ctx, "tasks: delivery not added, the sweep will", "tasks", len(tasks), "error", s.d.Redact(err.Error()))
	return false
}

// Late are deliveries that requests left because the queue did not answer.
func (s *Service) Late() <-chan []taskstate.Task { return s.quiet.late }

// AddLate adds what a request left, unless the process is about to end.
func (s *Service) AddLate(ctx context.Context, tasks []taskstate.Task) {
	if ctx.Err() == nil {
		s.publish(ctx, tasks)
	}
}
