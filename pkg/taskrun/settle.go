package taskrun

import (
	"context"
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// pinBatch is how many old pending entries one look at the trim's border reads.
const pinBatch = 100

// reconcileOnce puts entries in order that were read and never acknowledged (the table of design D4).
// It reads rows first and acts on the queue after: an entry may be acknowledged just after its row was claimed,
// which costs a message, never a task.
func (r *Runner) reconcileOnce(ctx context.Context) error {
	return r.eachPending(ctx, r.cfg.Reconcile.Batch, func(after string) ([]ingestq.Pending, error) {
		one, cancel := call(ctx)
		defer cancel()
		began := r.deps.Now()
		ps, err := r.deps.Queue.Pending(one, r.cfg.Reconcile.Idle, after, r.cfg.Reconcile.Batch)
		r.health.queueCall(began, err)
		return ps, err
	}, r.reconcile)
}

// eachPending pages through pending entries while pages are full.
func (r *Runner) eachPending(ctx context.Context, page int, next func(after string) ([]ingestq.Pending, error),
	do func(ctx context.Context, ps []ingestq.Pending, rows map[string]taskstate.Task, epoch int64) error,
) error {
	after := ""
	for ctx.Err() == nil {
		ps, err := next(after)
		if err != nil {
			return fmt.Errorf("list pending entries: %w", err)
		}
		if len(ps) == 0 {
			return nil
		}
		rows, epoch, err := r.rowsOf(ctx, ps)
		if err != nil {
			return err
		}
		if err := do(ctx, ps, rows, epoch); err != nil {
			return err
		}
		if len(ps) < page {
			return nil
		}
		after = ps[len(ps)-1].ID
	}
	return nil
}

// rowsOf reads the rows that pending entries name, and the epoch.
func (r *Runner) rowsOf(ctx context.Context, ps []ingestq.Pending) (map[string]taskstate.Task, int64, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	seen := map[string]bool{}
	var ids []string
	for _, p := range ps {
		if id := p.Envelope.GetTaskId(); id != "" && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	rows := make(map[string]taskstate.Task, len(ids))
	if len(ids) == 0 {
		return rows, 0, nil
	}
	began := r.deps.Now()
	m, err := r.deps.Store.Moment(ctx)
	if err == nil {
		var tasks []taskstate.Task
		tasks, err = r.deps.Store.GetMany(ctx, taskstate.System(), ids)
		for _, t := range tasks {
			rows[t.ID] = t
		}
	}
	if r.storeDone(began, err) != nil {
		return nil, 0, fmt.Errorf("read the rows of %d pending entries: %w", len(ps), err)
	}
	return rows, m.Epoch, nil
}

// reconcile puts one page in order.
func (r *Runner) reconcile(ctx context.Context, ps []ingestq.Pending, rows map[string]taskstate.Task, epoch int64) error {
	crash.Point("settle.after_scan")
	var queued []ingestq.Pending
	for _, p := range ps {
		id := p.Envelope.GetTaskId()
		t, known := rows[id]
		switch {
		case p.Gone: // trimmed while pending; nothing in it can be read any more, and its row needs no entry
			r.effects.ack(p.ID)
		case id == "":
			r.quarantine(ctx, p.Delivery)
		case !known:
			r.m.count(resultSkipped, 1)
			r.effects.ack(p.ID)
		case t.Status.Terminal() || t.Status == taskstate.StatusSuspended:
			r.died(t, epoch, p.ID)
		case t.Status == taskstate.StatusQueued && r.abandoned(p):
			queued = append(queued, p)
		}
		// RUNNING and RETRYING, due or not, lease live or not: recovery finds those in the table.
	}
	return r.renewAndCopy(ctx, queued)
}

// abandoned reports whether a QUEUED row's entry may be taken from its reader: no live reader is robbed.
func (r *Runner) abandoned(p ingestq.Pending) bool {
	return !p.Alive || p.Idle >= max(r.cfg.Reconcile.Idle, r.cfg.Policy.Lease)
}

// renewAndCopy renews the promises of QUEUED rows and, once that is committed, replaces their entries by copies made out of the rows.
// A row that is not QUEUED any more gets no copy: the next look decides anew.
func (r *Runner) renewAndCopy(ctx context.Context, ps []ingestq.Pending) error {
	if len(ps) == 0 {
		return nil
	}
	entries := map[string][]string{}
	var ids []string
	for _, p := range ps {
		id := p.Envelope.GetTaskId()
		if entries[id] == nil {
			ids = append(ids, id)
		}
		entries[id] = append(entries[id], p.ID)
	}
	ctx, cancel := call(ctx)
	defer cancel()
	outs, err := r.renewEnqueues(ctx, ids)
	if err != nil {
		return err
	}
	crash.Point("settle.after_row")
	for _, o := range outs {
		if o.Err != nil || o.Answer != taskstate.AnswerApplied {
			continue
		}
		r.effects.requeue(ingestq.Copy{ID: entries[o.TaskID][0], Envelope: ingestq.EnvelopeOf(o.After)})
		for _, id := range entries[o.TaskID][1:] {
			r.effects.ack(id) // one copy is enough
		}
	}
	return nil
}

// renewEnqueues promises QUEUED rows anew.
func (r *Runner) renewEnqueues(ctx context.Context, ids []string) ([]taskstate.Outcome, error) {
	outs, err := r.apply(ctx, taskstate.Batch{
		IDs: ids, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Renew(r.cfg.Policy, m, t)
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("renew %d promises: %w", len(ids), err)
	}
	return outs, nil
}

// trimOnce lets old pins go and removes what every group has finished (design D4).
func (r *Runner) trimOnce(ctx context.Context) error {
	err := r.eachPending(ctx, pinBatch, func(after string) ([]ingestq.Pending, error) {
		one, cancel := call(ctx)
		defer cancel()
		began := r.deps.Now()
		ps, err := r.deps.Queue.Pending(one, r.cfg.PinMax, after, pinBatch)
		r.health.queueCall(began, err)
		return ps, err
	}, r.unpin)
	if err != nil {
		return err
	}
	one, cancel := call(ctx)
	defer cancel()
	began := r.deps.Now()
	_, err = r.deps.Queue.Trim(one)
	err = errors.Join(err, crash.Fault("trim.after_trim"))
	r.health.queueCall(began, err)
	if err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	return nil
}

// unpin acknowledges entries whose rows wait longer for their retry than an entry may hold the stream's end: those rows need none.
func (r *Runner) unpin(ctx context.Context, ps []ingestq.Pending, rows map[string]taskstate.Task, _ int64) error {
	var ids []string
	for _, p := range ps {
		if rows[p.Envelope.GetTaskId()].Status == taskstate.StatusRetrying {
			ids = append(ids, p.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := call(ctx)
	defer cancel()
	began := r.deps.Now()
	err := errors.Join(r.deps.Queue.Unpin(ctx, r.cfg.PinMax, ids...), crash.Fault("trim.after_let_go"))
	r.health.queueCall(began, err)
	if err != nil {
		return fmt.Errorf("let %d entries go: %w", len(ids), err)
	}
	return nil
}
