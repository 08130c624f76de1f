package delivery

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
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
		if d.Envelope != nil {
			p.requeue(d.ID, d.Envelope)
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
