package taskrun

import (
	"context"
	"errors"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

// glance is the wait of a read while more deliveries are known to be there, and the wait for more free slots before it.
const glance = time.Millisecond

// deliverWorkers is how many loops take deliveries: one reads what comes while the other claims. With many slots both claim in a backlog.
const deliverWorkers = 2

// deliverLoop takes new deliveries, never more than there are free slots, until ctx ends.
// It outlives every trouble of the queue and the store.
func (r *Runner) deliverLoop(ctx context.Context) {
	wait := local.Backoff()
	for ctx.Err() == nil {
		if !r.isolated.AwaitNone(ctx) || !r.fit.Await(ctx) || !r.draining.Await(ctx) {
			return
		}
		if r.slots.Batching() { // short tasks end by the dozen: one claim for many of them
			pause.For(ctx, glance)
		}
		n, more, changed := r.slots.BeginRead()
		if n == 0 {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if err := r.deliverOnce(ctx, n, more); err != nil {
			r.health.Warn(ctx, "runner: read deliveries", err)
			pause.For(ctx, wait.Next())
			continue
		}
		wait.Reset()
	}
}

// deliverOnce reads at most n deliveries and claims their tasks.
func (r *Runner) deliverOnce(ctx context.Context, n int, more bool) error {
	block := r.cfg.Block
	if more {
		block = glance
	}
	// A read that is cut off may leave entries with a member who does not know them: it ends by itself.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), block+local.CallLimit)
	defer cancel()
	began := r.deps.Now()
	ds, err := r.deps.Queue.Read(reading, n, block)
	r.health.QueueCall(began, err)
	granted, used := r.slots.EndRead(n, len(ds)), 0
	if len(ds) > 0 {
		crash.Point("worker.after_read")
		r.health.Delivered()
		r.transport.HandBack(ctx, ds[granted:]) // recovery took their slots while the stream was empty
		used = r.take(ctx, ds[:granted])
	}
	r.slots.EndLane(granted, used)
	return err
}

// arrivals are deliveries by the task that they name, in the order of their coming.
type arrivals struct {
	ids    []string
	byTask map[string][]ingestq.Delivery
}

// sortArrivals puts undecodable deliveries aside.
func sortArrivals(ds []ingestq.Delivery) (a arrivals, undecodable []ingestq.Delivery) {
	a.byTask = make(map[string][]ingestq.Delivery, len(ds))
	for _, d := range ds {
		id := d.TaskID
		if id == "" {
			undecodable = append(undecodable, d)
			continue
		}
		if _, known := a.byTask[id]; !known {
			a.ids = append(a.ids, id)
		}
		a.byTask[id] = append(a.byTask[id], d)
	}
	return a, undecodable
}

// arriving returns ctx with the trace of the first message that is sampled: the claim of many stands in it.
func (r *Runner) arriving(ctx context.Context, a *arrivals) context.Context {
	if r.silent() {
		return ctx
	}
	for _, id := range a.ids {
		parent := a.byTask[id][0].Envelope().GetContext().GetTraceparent()
		if telemetry.SpanContext(parent).IsSampled() {
			return telemetry.WithTraceparent(ctx, parent)
		}
	}
	return ctx
}

// take claims the tasks of ds in one transaction and starts those that it won; it returns how many slots they use.
// While the database does not answer it keeps what it read; at a stop it hands that back.
func (r *Runner) take(ctx context.Context, ds []ingestq.Delivery) (used int) {
	a, undecodable := sortArrivals(ds)
	for _, d := range undecodable {
		r.effects.Quarantine(ctx, d)
	}
	if len(a.ids) == 0 {
		return 0
	}
	first := make(map[string]string, len(a.ids))
	for id, ds := range a.byTask {
		first[id] = ds[0].ID
	}
	c := r.newClaim(first, false)
	defer c.end()
	crash.Point("worker.before_claim")
	wait := local.Backoff()
	for {
		n, err := r.tryTake(ctx, c, &a)
		used += n
		if len(a.ids) == 0 {
			return used
		}
		r.health.Warn(ctx, "runner: claim deliveries", err)
		if !pause.For(ctx, wait.Next()) {
			break
		}
	}
	for _, id := range a.ids {
		r.transport.HandBack(ctx, a.byTask[id])
	}
	return used
}

// tryTake is one try of take: it returns how many tasks run now, and leaves in a what the database said nothing about.
func (r *Runner) tryTake(ctx context.Context, c *claimTx, a *arrivals) (used int, err error) {
	r.isolated.Gate.RLock()
	defer r.isolated.Gate.RUnlock()
	// During a reservation, or when it cannot work, this process takes nothing else; it only asks for what a COMMIT without an answer gave it.
	c.ownOnly = r.takesNothing()
	if c.ownOnly && !r.asking.UnheardOf(c.req.Owner) {
		for _, id := range a.ids {
			r.transport.HandBack(ctx, a.byTask[id])
		}
		a.ids = nil
		return 0, nil
	}
	c.reserving = !c.ownOnly && r.isolated.Begin()
	outs, err := c.byIDs(r.arriving(ctx, a), a.ids)
	if c.reserving && !reservedIn(outs) {
		r.isolated.GiveUp()
	}
	if err != nil {
		return 0, err
	}
	crash.Point("worker.after_claim")
	a.ids = unheard(outs)
	for _, o := range outs {
		if errors.Is(o.Err, taskstate.ErrOutcomeUnknown) {
			err = o.Err
			continue
		}
		if r.answer(ctx, c, o, a.byTask[o.TaskID]) {
			used++
		}
	}
	return used, err
}
