package taskrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// finishLoop commits outcomes in batches: what came while one transaction ran goes into the next, and a single one waits for nobody.
func (r *Runner) finishLoop(ctx context.Context) {
	for {
		select {
		case o := <-r.outcomes:
			r.finishWaiting(ctx, []outcome{o})
		case <-ctx.Done():
			return
		}
	}
}

// relieveLoop commits outcomes beside finishLoop while a full batch of them waits.
func (r *Runner) relieveLoop(ctx context.Context) {
	for {
		select {
		case <-r.relief:
		case <-ctx.Done():
			return
		}
		for r.batchWaits() && ctx.Err() == nil {
			r.finishWaiting(ctx, nil)
		}
	}
}

// batchWaits reports whether a full batch of outcomes waits.
func (r *Runner) batchWaits() bool { return len(r.outcomes) >= r.cfg.FinishBatch }

// finishWaiting commits batch and what waits with it.
func (r *Runner) finishWaiting(ctx context.Context, batch []outcome) {
	for {
		now, later := r.gather(batch)
		if len(now) == 0 {
			return // the other loop was faster
		}
		r.slots.Finishing()
		r.finishBatch(ctx, now)
		if len(later) == 0 {
			return
		}
		batch = later
	}
}

// gather adds what is waiting and sorts it by task, in the order of locks, in which the store returns rows too; a second claim of
// the same task goes into the next batch.
func (r *Runner) gather(batch []outcome) (now, later []outcome) {
	for waits := true; waits && len(batch) < r.cfg.FinishBatch; {
		select {
		case o := <-r.outcomes:
			batch = append(batch, o)
		default:
			waits = false
		}
	}
	slices.SortStableFunc(batch, func(a, b outcome) int { return cmp.Compare(a.h.Task.ID, b.h.Task.ID) })
	now = batch[:0]
	for _, o := range batch {
		if len(now) > 0 && now[len(now)-1].h.Task.ID == o.h.Task.ID {
			later = append(later, o)
			continue
		}
		now = append(now, o)
	}
	return now, later
}

// finishTx is one finishing transaction; its hooks may run again when the transaction is retried.
type finishTx struct {
	r        *Runner
	batch    []outcome // by task
	types    map[string]string
	payloads map[string]any
	epoch    int64
	unsure   bool // the outcome of a try before is unknown: what it wrote is this process's own
}

// of is the outcome of a task of the batch.
func (f *finishTx) of(id string) outcome {
	i, _ := slices.BinarySearchFunc(f.batch, id, func(o outcome, id string) int { return cmp.Compare(o.h.Task.ID, id) })
	return f.batch[i]
}

// finishBatch commits outcomes, sorted by task, as often as the database needs, and then does what follows from them.
func (r *Runner) finishBatch(ctx context.Context, batch []outcome) {
	n := len(batch)
	f := &finishTx{r: r, batch: batch, types: make(map[string]string, n), payloads: map[string]any{}}
	b := taskstate.Batch{IDs: make([]string, n), Scope: taskstate.System(), Decide: f.decide, OnTransition: f.onTransition, Held: make([]taskstate.Task, n)}
	for i, o := range batch {
		id := o.h.Task.ID
		b.IDs[i], f.types[id] = id, o.h.Task.Type
		if o.sort == outcomeSuccess && o.result.Payload != nil {
			f.payloads[id] = o.result.Payload
		}
		if o.sort == outcomeSuccess && r.decider(o.h.Task.Type) != nil {
			b.Held = nil // it locks documents, and tasks come first
		} else if b.Held != nil {
			b.Held[i] = o.h.Task
		}
	}
	outs, err := r.commit(below(ctx, batch), f, b)
	if err != nil { // the stop has no more time: their leases end them
		r.health.Warn(ctx, "runner: outcomes left to their leases", err, slog.Int("tasks", len(batch)))
		for _, o := range batch {
			r.claims.Drop(o.h)
		}
		return
	}
	crash.Point("worker.after_finish")
	r.m.FinishBatch.Observe(float64(len(batch)))
	r.effects.Together(func() {
		for _, out := range outs {
			if out.Err == nil {
				o := f.of(out.TaskID)
				r.finished(ctx, o, f.read(o, out), f.epoch)
				r.claims.Drop(o.h)
			}
		}
	})
	var again []outcome
	for _, out := range outs {
		switch o := f.of(out.TaskID); {
		case local.Unavailable(out.Err): // the database went away between two rows
			again = append(again, o)
		case out.Err != nil:
			r.unwritten(ctx, o, out.Err)
		}
	}
	if len(again) > 0 {
		r.finishBatch(ctx, again)
	}
}

// below returns ctx with the first span of the claims that something records, so that a transaction for many of them stands in
// one of their traces.
func below(ctx context.Context, batch []outcome) context.Context {
	for _, o := range batch {
		if span := o.h.Ends(); span != nil {
			return trace.ContextWithSpan(ctx, span)
		}
	}
	return ctx
}

// commit applies b until the database answers, or nobody waits any more.
// Heartbeats go on meanwhile; a claim that was lost answers so in the end.
func (r *Runner) commit(ctx context.Context, f *finishTx, b taskstate.Batch) ([]taskstate.Outcome, error) {
	wait := local.Backoff()
	for {
		one, cancel := local.Bounded(ctx)
		outs, err := r.store.Apply(one, b)
		cancel()
		if err == nil {
			return outs, nil
		}
		if errors.Is(err, taskstate.ErrOutcomeUnknown) {
			f.unsure, b.Held = true, nil // the rows say what became of it
		}
		err = fmt.Errorf("finish %d tasks: %w", len(b.IDs), err)
		r.health.Warn(ctx, "runner: commit outcomes", err)
		timer := time.NewTimer(wait.Next())
		select {
		case <-timer.C:
		case <-r.ended:
			timer.Stop()
			return nil, err
		}
	}
}

// decide asks the deciders about their successes and the state machine about everything else.
func (f *finishTx) decide(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
	f.epoch = m.Epoch
	out := make([]taskstate.Decision, len(tasks))
	at := map[string]int{} // places of those
	dones := map[string][]Done{}
	for i, t := range tasks {
		o := f.of(t.ID)
		h := o.h.Holder(f.r.cfg.Process)
		if o.sort == outcomeSuccess && h.Holds(m, t) && f.r.decider(t.Type) != nil {
			at[t.ID] = i
			dones[t.Type] = append(dones[t.Type], Done{Task: t, Holder: h, Result: o.result})
			continue
		}
		out[i] = f.simple(m, t, h, o)
	}
	for _, typ := range slices.Sorted(maps.Keys(dones)) {
		ds, err := f.r.decideDone(ctx, tx, m, typ, dones[typ])
		if err != nil {
			return nil, err
		}
		for _, d := range ds {
			out[at[d.TaskID]] = d
		}
	}
	return out, nil
}

// read takes a lost claim for what it is after a try whose outcome was unknown: with the claim's own fence
// nobody else held the task, so the row says what that try wrote.
func (f *finishTx) read(o outcome, out taskstate.Outcome) taskstate.Outcome {
	t := out.Before
	mine := t.Fence == o.h.Token.Fence && f.epoch == o.h.Token.Epoch && t.Status != taskstate.StatusRunning
	if f.unsure && out.Answer == taskstate.AnswerLost && mine {
		out.Answer = taskstate.AnswerApplied
	}
	return out
}

// simple decides without a kind.
func (f *finishTx) simple(m taskstate.DBClock, t taskstate.Task, h taskstate.Holder, o outcome) taskstate.Decision {
	switch o.sort {
	case outcomeFailure:
		return taskstate.Fail(f.r.cfg.Policy, m, t, h, o.failure)
	case outcomeHandBack:
		return taskstate.HandBack(m, t, h, o.message)
	case outcomeSuccess:
	}
	return taskstate.Succeed(m, t, h, o.result.Output, o.message)
}

// decideDone asks one kind about the jobs that ended well; it must decide on each of them.
func (r *Runner) decideDone(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, typ string, dones []Done) ([]taskstate.Decision, error) {
	var ds []taskstate.Decision
	err := guard(func() (err error) {
		ds, err = r.decider(typ).Decide(ctx, tx, m, dones)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("decide on %d %s tasks: %w", len(dones), typ, err)
	}
	decided := make(map[string]bool, len(ds))
	for _, d := range ds {
		decided[d.TaskID] = true
	}
	for _, done := range dones {
		if !decided[done.Task.ID] {
			return nil, fmt.Errorf("decide on %s task %s: no decision", typ, done.Task.ID)
		}
	}
	if len(ds) != len(dones) {
		return nil, fmt.Errorf("decide on %d %s tasks: %d decisions", len(dones), typ, len(ds))
	}
	return ds, nil
}

// onTransition lets the kinds write what belongs to the outcomes.
func (f *finishTx) onTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
	if err := f.r.onTransition(ctx, tx, m, changed, f.types, f.payloads); err != nil {
		return err
	}
	return crash.Fault("worker.in_finish")
}

// unwritten deals with an outcome whose own transaction fails although the database answers:
// a success becomes a failed attempt that names the cause; what fails even so is left to its lease.
func (r *Runner) unwritten(ctx context.Context, o outcome, err error) {
	r.deps.Log.ErrorContext(o.h.Ctx(), "runner: an outcome cannot be written", "task_id", o.h.Task.ID, "error", err)
	if o.sort != outcomeSuccess {
		r.transport.Release(o.h.Delivery)
		r.claims.Drop(o.h)
		return
	}
	o.sort, o.failure = outcomeFailure, internalFailure(fmt.Errorf("finish: %w", err))
	if _, thrown := errors.AsType[*panicError](err); !thrown && r.handler(o.h.Task.Type) != nil {
		o.failure = r.classify(o.h, fmt.Errorf("finish: %w", err))
	}
	r.finishBatch(ctx, []outcome{o})
}

// finished does what follows a committed outcome, in the order of design D11.
func (r *Runner) finished(ctx context.Context, o outcome, out taskstate.Outcome, epoch int64) {
	if out.Answer != taskstate.AnswerApplied {
		r.m.Lost.Inc() // its entry may be the new holder's by now: leave it
		r.transport.Release(o.h.Delivery)
		return
	}
	result := local.ResultSkipped
	switch out.After.Status {
	case taskstate.StatusSucceeded:
		result = local.ResultSucceeded
		r.slots.Grow()
		r.effects.Ack(o.h.Delivery)
	case taskstate.StatusRetrying:
		crash.Point("worker.after_retry_row")
		result = local.ResultRetry // its entry stays pending; the row knows it
		r.transport.Release(o.h.Delivery)
		r.wake(out.After.NextRetryAt.Sub(out.After.UpdatedAt))
	case taskstate.StatusDead:
		crash.Point("worker.after_dead_row")
		result = local.ResultDead
		r.effects.Died(out.After, epoch, o.h.Delivery)
	case taskstate.StatusQueued:
		crash.Point("handback.after_row")
		r.m.HandedBack.Inc()
		r.handBack(out.After, o.h)
		return
	case taskstate.StatusCancelled, taskstate.StatusSuspended:
		r.effects.Ack(o.h.Delivery)
	case taskstate.StatusNone, taskstate.StatusRunning:
		r.health.Warn(ctx, "runner: commit outcomes", errUnexpected(out), slog.String("task_id", out.TaskID))
	}
	r.m.Count(result, 1)
	r.m.Seconds.WithLabelValues(result).Observe(r.deps.Now().Sub(o.h.Began).Seconds())
}

// handBack makes the delivery of a task that was handed back: of its own entry, if the queue still had that.
func (r *Runner) handBack(t taskstate.Task, h *local.Claim) {
	delivery := h.Delivery
	if h.EntryGone.Load() {
		delivery = ""
	}
	r.transport.HandBackTask(t, delivery)
}
