package submit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Deliverer tells the queue and the watchers what a commit has changed. It is safe for concurrent use.
type Deliverer struct {
	d     ingest.Deps
	cfg   ingest.Config
	quiet quietQueue // the queue, when it does not answer
}

// NewDeliverer makes a Deliverer.
func NewDeliverer(d ingest.Deps, cfg ingest.Config) *Deliverer {
	return &Deliverer{d: d, cfg: cfg, quiet: quietQueue{late: make(chan []taskstate.Task, 1)}}
}

// Late are deliveries that requests left, because the queue did not answer.
func (a *Deliverer) Late() <-chan []taskstate.Task { return a.quiet.late }

// Announce adds the deliveries of tasks that became QUEUED and wakes who waits for them.
// A delivery that could not be added is not lost: its row is the promise (design D5).
func (a *Deliverer) Announce(ctx context.Context, tasks []taskstate.Task) {
	if len(tasks) == 0 {
		return
	}
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	a.d.Changed(ids...)
	if a.d.Publisher == nil {
		return
	}
	if a.quiet.leave(a.d.Clock(), tasks) {
		return // nobody waits for a queue that does not answer
	}
	a.publish(ctx, tasks)
}

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
func (a *Deliverer) publish(ctx context.Context, tasks []taskstate.Task) {
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

// AddLate adds what a request left, unless the process is about to end.
func (a *Deliverer) AddLate(ctx context.Context, tasks []taskstate.Task) {
	if ctx.Err() == nil {
		a.publish(ctx, tasks)
	}
}

// AnnounceChanges wakes who waits for changed tasks, the sweeper, and publishes those that became QUEUED.
func (a *Deliverer) AnnounceChanges(ctx context.Context, outcomes []taskstate.Outcome) {
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
	a.Announce(ctx, queued)
}
