package taskrun

import (
	"context"
	"log/slog"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// What differs between the two transports (the table of design D4) stands in this file. On Redis an entry stays pending while its
// row needs it. On Kafka a record holds up all that come after it in its partition, and RETRYING and RUNNING rows need no
// message: only a record whose claim this process holds is kept.

// Outbox reads and moves the events of rows. *outbox.Reader implements it.
type Outbox interface {
	// Trails reads, in the transaction that has locked the tasks, what their deliveries' events say; a task without one is left out.
	Trails(ctx context.Context, tx taskstate.Tx, taskIDs []string) (map[string]taskstate.EventTrail, error)
	// UnsentDeadLetters lists at most n dead letters that no relay has sent or leased.
	UnsentDeadLetters(ctx context.Context, n int) ([]ingestq.UnsentDeadLetter, error)
	// LockDeadLetters locks events that are still so, and returns them; what a relay has locked is left out.
	LockDeadLetters(ctx context.Context, tx taskstate.Tx, seqs []int64) (map[int64]bool, error)
	// DropDeadLetters removes events that are still so, and returns how many.
	DropDeadLetters(ctx context.Context, tx taskstate.Tx, seqs []int64) (int, error)
}

// DeadLetterWriter writes dead letters.
type DeadLetterWriter interface {
	// DeadLetters writes entries; an error says that some may not have been written.
	DeadLetters(ctx context.Context, deadLetters []ingestq.DeadLetter) error
}

// ackOthers acknowledges deliveries, except the row's own entry.
func (r *Runner) ackOthers(ds []ingestq.Delivery, own string) {
	for _, d := range ds {
		if d.ID != own || !r.transport.Pending {
			r.effects.ack(d.ID)
		}
	}
}

// ackRecords acknowledges what nobody would come back for.
func (r *Runner) ackRecords(ds []ingestq.Delivery) {
	if !r.transport.Pending {
		r.ackOthers(ds, "")
	}
}

// ackReplaced acknowledges the entry that a claim replaced in its row by another.
func (r *Runner) ackReplaced(old, now string) {
	if r.transport.Pending && old != now {
		r.effects.ack(old)
	}
}

// entryOf is the entry that a row names. A record is known only to the process that read it.
func (r *Runner) entryOf(t taskstate.Task) string {
	if r.transport.Pending {
		return t.Delivery
	}
	return ""
}

// release ends what this process has to do with a claim whose outcome it does not write: its row says what comes next.
func (r *Runner) release(h *claim) {
	if !r.transport.Pending {
		r.effects.ack(h.delivery)
	}
}

// handBack returns deliveries that were read and not claimed. An entry is copied and acknowledged in one step.
// A record that was not finished is read again after a stop; while the process goes on, its row is enqueued anew.
func (r *Runner) handBack(ctx context.Context, ds []ingestq.Delivery) {
	for _, d := range ds {
		switch {
		case d.Envelope == nil:
		case r.transport.Pending:
			r.effects.requeue(ingestq.Copy{ID: d.ID, Envelope: d.Envelope})
		case ctx.Err() == nil:
			r.effects.renew(d)
		}
	}
}

// handBackTask makes the delivery of a task that was handed back: a copy of its entry, or a new one.
// Where deliveries are events, the row's own transaction has made it.
func (r *Runner) handBackTask(t taskstate.Task, h *claim) {
	switch {
	case !r.transport.Pending:
		r.effects.ack(h.delivery)
	case h.delivery == "" || h.entryGone.Load():
		r.effects.publish(t)
	default:
		r.effects.requeue(ingestq.Copy{ID: h.delivery, Envelope: ingestq.EnvelopeOf(t)})
	}
}

// renews enqueues rows anew whose records this process read and cannot claim, and then acknowledges those; it answers what to
// try again. A row that is not QUEUED any more, or fails alone, needs none of them.
func (c *queueEffects) renews(ctx context.Context, ds []ingestq.Delivery) (again []ingestq.Delivery, done []string) {
	if len(ds) == 0 {
		return nil, nil
	}
	a, _ := sortArrivals(ds)
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if _, err := c.r.renewEnqueues(ctx, a.ids); err != nil {
		c.r.health.warn(ctx, "runner: promise records anew", err, slog.Int("tasks", len(a.ids)))
		return ds, nil
	}
	for _, d := range ds {
		done = append(done, d.ID)
	}
	return nil, done
}
