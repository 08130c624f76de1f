package ingest

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

// publish adds deliveries; a queue that does not answer in time is left alone for a while.
func (a *App) publish(ctx context.Context, tasks []taskstate.Task) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.PublishTimeout)
	defer cancel()
	err := taskrun.Publish(ctx, a.d.Publisher, tasks)
	switch {
	case err == nil:
		a.quiet.set(time.Time{})
		return
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		a.quiet.set(a.d.Clock().Add(quietRest))
	}
	a.d.Log.DebugContext(ctx, "ingest: delivery not added, the sweep will", "tasks", len(tasks), "error", a.d.Redact(err.Error()))
}

// addLate adds what a request left, unless the process is about to end.
func (a *App) addLate(ctx context.Context, tasks []taskstate.Task) {
	if ctx.Err() == nil {
		a.publish(ctx, tasks)
	}
}
