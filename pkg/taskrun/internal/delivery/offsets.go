package delivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// committedOffsets is the transport whose group commits offsets (Kafka): RETRYING and RUNNING rows need no message, and a
// new delivery is an event of the row's own transaction.
type committedOffsets struct{ *Effects }

// AckOthers acknowledges the row's own record too: a record is known only to the process that read it.
func (o *committedOffsets) AckOthers(ds []ingestq.Delivery, _ string) {
	for _, d := range ds {
		o.Ack(d.ID)
	}
}

func (o *committedOffsets) AckFailed(ds []ingestq.Delivery) { o.AckOthers(ds, "") }

func (o *committedOffsets) AckReplaced(string, string) {}

func (o *committedOffsets) EntryOf(taskstate.Task) string { return "" }

func (o *committedOffsets) Release(delivery string) { o.Ack(delivery) }

// HandBack enqueues the rows anew while the process goes on; after a stop a record that was not finished is read again.
func (o *committedOffsets) HandBack(ctx context.Context, ds []ingestq.Delivery) {
	for _, d := range ds {
		if d.TaskID != "" && ctx.Err() == nil {
			o.renew(d)
		}
	}
}

func (o *committedOffsets) HandBackTask(_ taskstate.Task, delivery string) { o.Ack(delivery) }

func (o *committedOffsets) HandBackReserved(context.Context, taskstate.Task, ingestq.Delivery) {}

func (o *committedOffsets) DecideLost(watermark time.Time) taskstate.DecideFunc {
	return func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
		ids := make([]string, len(tasks))
		for i, t := range tasks {
			ids[i] = t.ID
		}
		trails, err := o.Outbox.Trails(ctx, tx, ids)
		if err != nil {
			return nil, fmt.Errorf("read the events of %d tasks: %w", len(ids), err)
		}
		out := make([]taskstate.Decision, len(tasks))
		for i, t := range tasks {
			out[i] = taskstate.EnqueueEvent(o.cfg.Policy, m, t, watermark, trails[t.ID])
		}
		return out, nil
	}
}

// Enqueue has nothing to do: the events were committed with the rows.
func (o *committedOffsets) Enqueue(context.Context, []taskstate.Task) error { return nil }

func (o *committedOffsets) WriteDLQPending(ctx context.Context) error {
	if o.DeadLetters != nil {
		return o.full(ctx, func(ctx context.Context) (int, error) { return o.writeDLQPending(ctx, o.EntryOf) })
	}
	return o.full(ctx, o.dlqPendingByEvent)
}

func (o *committedOffsets) Loops() []loop { return nil }

// dlqPendingByEvent turns one batch of owed entries into events, each with its mark (design D11), and returns how many rows it read.
func (o *committedOffsets) dlqPendingByEvent(ctx context.Context) (int, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	outs, err := o.Store.Sweep(ctx, taskstate.Sweep{
		Status: taskstate.StatusDead, WakeBefore: taskstate.In(0), Limit: o.cfg.SweepBatch,
		Decide: taskstate.Each(taskstate.SendDLQ),
	})
	if err != nil {
		return 0, fmt.Errorf("send owed dead letters by the outbox: %w", err)
	}
	if !slices.ContainsFunc(outs, func(o taskstate.Outcome) bool { return o.Err == nil && o.Change != nil }) {
		return 0, nil // nothing moves by looking again at once
	}
	return len(outs), nil
}
