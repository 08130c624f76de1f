package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// pendingEntries is the transport whose deliveries stay pending until they are acknowledged (Redis Streams).
type pendingEntries struct{ *Effects }

func (p *pendingEntries) AckOthers(ds []ingestq.Delivery, own string) {
	for _, d := range ds {
		if d.ID != own {
			p.Ack(d.ID)
		}
	}
}

// AckFailed leaves the entries pending: the row's enqueueing brings the task again.
func (p *pendingEntries) AckFailed([]ingestq.Delivery) {}

func (p *pendingEntries) AckReplaced(old, now string) {
	if old != now {
		p.Ack(old)
	}
}

func (p *pendingEntries) EntryOf(t taskstate.Task) string { return t.Delivery }

// Release leaves the entry: the row knows it.
func (p *pendingEntries) Release(string) {}

// HandBack copies and acknowledges in one step.
func (p *pendingEntries) HandBack(_ context.Context, ds []ingestq.Delivery) {
	for _, d := range ds {
		if e := d.Envelope(); e != nil {
			p.requeue(d.ID, e)
		}
	}
}

func (p *pendingEntries) HandBackTask(t taskstate.Task, delivery string) {
	if delivery == "" {
		p.publish(t)
		return
	}
	p.requeue(delivery, ingestq.DeliveryOf(t))
}

func (p *pendingEntries) HandBackReserved(ctx context.Context, t taskstate.Task, d ingestq.Delivery) {
	if t.Status == taskstate.StatusQueued {
		p.HandBack(ctx, []ingestq.Delivery{d})
		return
	}
	p.AckOthers([]ingestq.Delivery{d}, t.Delivery)
}

func (p *pendingEntries) DecideLost(watermark time.Time) taskstate.DecideFunc {
	return taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Enqueue(p.cfg.Policy, m, t, watermark)
	})
}

func (p *pendingEntries) Enqueue(ctx context.Context, lost []taskstate.Task) error {
	if len(lost) == 0 {
		return nil
	}
	return p.ask(ctx, func(ctx context.Context) error {
		err := publish(ctx, p.Tracer, p.pending, lost)
		crash.Point("promise.after_xadd")
		return err
	})
}

// WriteDLQPending first takes over what the other transport has left in the outbox, if no relay can send it.
func (p *pendingEntries) WriteDLQPending(ctx context.Context) error {
	if !p.cfg.Policy.DLQ {
		return nil
	}
	if p.Outbox != nil {
		if err := p.full(ctx, p.takeUnsent); err != nil {
			return err
		}
	}
	return p.full(ctx, func(ctx context.Context) (int, error) { return p.writeDLQPending(ctx, p.EntryOf) })
}

func (p *pendingEntries) Loops() []loop {
	all := []loop{{"trim the stream", p.cfg.TrimInterval, p.trimOnce}}
	if p.cfg.Reconcile.Enabled {
		all = append(all, loop{"reconcile pending entries", p.cfg.Reconcile.Interval, p.reconcileOnce})
	}
	return all
}

// pinBatch is how many old pending entries one look at the trim's border reads.
const pinBatch = 100

// reconcileOnce puts entries in order that were read and never acknowledged (the table of design D4).
// It reads rows first and acts on the queue after: an entry may be acknowledged just after its row was claimed,
// which costs a message, never a task.
func (p *pendingEntries) reconcileOnce(ctx context.Context) error {
	return p.eachPending(ctx, p.cfg.Reconcile.Idle, p.cfg.Reconcile.Batch, p.reconcile)
}

// page are pending entries with the rows that they name.
type page struct {
	entries []ingestq.Pending
	rows    map[string]taskstate.Task
	epoch   int64
}

// eachPending pages through entries that are idle for so long, while pages are full.
func (p *pendingEntries) eachPending(ctx context.Context, idle time.Duration, size int, do func(context.Context, page) error) error {
	after := ""
	for ctx.Err() == nil {
		var entries []ingestq.Pending
		err := p.ask(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
			entries, err = p.pending.Pending(ctx, idle, after, size)
			return err
		})
		if err != nil {
			return fmt.Errorf("list pending entries: %w", err)
		}
		if len(entries) == 0 {
			return nil
		}
		one := page{entries: entries}
		if one.rows, one.epoch, err = p.rowsOf(ctx, entries); err != nil {
			return err
		}
		if err := do(ctx, one); err != nil {
			return err
		}
		if len(entries) < size {
			return nil
		}
		after = entries[len(entries)-1].ID
	}
	return nil
}

// rowsOf reads the rows that pending entries name, and the epoch.
func (p *pendingEntries) rowsOf(ctx context.Context, ps []ingestq.Pending) (map[string]taskstate.Task, int64, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	var ids []string
	for _, p := range ps {
		if id := p.TaskID; id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	rows := make(map[string]taskstate.Task, len(ids))
	if len(ids) == 0 {
		return rows, 0, nil
	}
	m, err := p.Store.Moment(ctx)
	if err == nil {
		var tasks []taskstate.Task
		tasks, err = p.Store.GetMany(ctx, taskstate.System(), ids)
		for _, t := range tasks {
			rows[t.ID] = t
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the rows of %d pending entries: %w", len(ps), err)
	}
	return rows, m.Epoch, nil
}

// reconcile puts one page in order.
func (p *pendingEntries) reconcile(ctx context.Context, one page) error {
	crash.Point("settle.after_scan")
	var queued []ingestq.Pending
	for _, e := range one.entries {
		id := e.TaskID
		t, known := one.rows[id]
		switch {
		case e.Gone: // trimmed while pending; nothing in it can be read any more, and its row needs no entry
			p.Ack(e.ID)
		case id == "":
			p.Quarantine(ctx, e.Delivery)
		case !known:
			p.Metrics.Count(local.ResultSkipped, 1)
			p.Ack(e.ID)
		case t.Status.Terminal() || t.Status == taskstate.StatusSuspended:
			p.Died(t, one.epoch, e.ID)
		case t.Status == taskstate.StatusQueued && p.abandoned(e):
			queued = append(queued, e)
		}
		// RUNNING and RETRYING, due or not, lease live or not: recovery finds those in the table.
	}
	return p.renewAndCopy(ctx, queued)
}

// abandoned reports whether a QUEUED row's entry may be taken from its reader: no live reader is robbed.
func (p *pendingEntries) abandoned(e ingestq.Pending) bool {
	return !e.Alive || e.Idle >= max(p.cfg.Reconcile.Idle, p.cfg.Policy.Lease)
}

// renewAndCopy renews the promises of QUEUED rows and, once that is committed, replaces their entries by copies made out of the rows.
// A row that is not QUEUED any more gets no copy: the next look decides anew.
func (p *pendingEntries) renewAndCopy(ctx context.Context, queued []ingestq.Pending) error {
	if len(queued) == 0 {
		return nil
	}
	entries := map[string][]string{}
	for _, e := range queued {
		id := e.TaskID
		entries[id] = append(entries[id], e.ID)
	}
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	outs, err := p.renewEnqueues(ctx, slices.Sorted(maps.Keys(entries)))
	if err != nil {
		return err
	}
	crash.Point("settle.after_row")
	for _, o := range outs {
		if o.Err != nil || o.Answer != taskstate.AnswerApplied {
			continue
		}
		p.requeue(entries[o.TaskID][0], ingestq.DeliveryOf(o.After))
		for _, id := range entries[o.TaskID][1:] {
			p.Ack(id) // one copy is enough
		}
	}
	return nil
}

// renewEnqueues promises QUEUED rows anew.
func (c *Effects) renewEnqueues(ctx context.Context, ids []string) ([]taskstate.Outcome, error) {
	outs, err := c.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Renew(c.cfg.Policy, m, t)
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("renew %d promises: %w", len(ids), err)
	}
	return outs, nil
}

// unpin acknowledges entries whose rows wait longer for their retry than an entry may claim the stream's end: those rows need none.
func (p *pendingEntries) unpin(ctx context.Context, one page) error {
	var ids []string
	for _, e := range one.entries {
		if one.rows[e.TaskID].Status == taskstate.StatusRetrying {
			ids = append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	err := p.ask(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return errors.Join(p.pending.Unpin(ctx, p.cfg.PinMax, ids...), crash.Fault("trim.after_let_go"))
	})
	if err != nil {
		return fmt.Errorf("unpin %d entries: %w", len(ids), err)
	}
	return nil
}

// trimOnce unpins old entries and removes what every group has finished (design D4).
func (p *pendingEntries) trimOnce(ctx context.Context) error {
	if err := p.eachPending(ctx, p.cfg.PinMax, pinBatch, p.unpin); err != nil {
		return err
	}
	err := p.ask(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := p.pending.Trim(ctx)
		return errors.Join(err, crash.Fault("trim.after_trim"))
	})
	if err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	return nil
}
