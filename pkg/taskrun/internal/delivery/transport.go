// Package delivery is all that a runner does with its queue besides reading: post-commit effects, dead letters, lost
// deliveries, and what differs between the two sorts of transport.
package delivery

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Transport is what differs between the two sorts of queue (the table of design D4): one keeps an entry pending while its
// row needs it; of the other a record holds up all that come after it in its partition, so that only a record whose claim
// this process holds is kept.
type Transport interface {
	// AckOthers acknowledges deliveries, except the row's own entry.
	AckOthers(ds []ingestq.Delivery, own string)
	// AckFailed acknowledges deliveries of a row that could not be claimed, if nobody would come back for them.
	AckFailed(ds []ingestq.Delivery)
	// AckReplaced acknowledges the entry that a claim replaced in its row by another.
	AckReplaced(old, now string)
	// EntryOf is the entry that a row names; empty: none that this process may use.
	EntryOf(t taskstate.Task) string
	// Release ends what this process has to do with a claim whose outcome it does not write: its row says what comes next.
	Release(delivery string)
	// HandBack returns deliveries that were read and not claimed.
	HandBack(ctx context.Context, ds []ingestq.Delivery)
	// HandBackTask makes the delivery of a task that was handed back.
	HandBackTask(t taskstate.Task, delivery string)
	// HandBackReserved returns the delivery of a reservation that a stop has released.
	HandBackReserved(ctx context.Context, t taskstate.Task, d ingestq.Delivery)

	// DecideLost judges QUEUED rows by the read watermark (design D5).
	DecideLost(watermark time.Time) taskstate.DecideFunc
	// Enqueue makes the deliveries of rows that were enqueued anew; their transaction is committed.
	Enqueue(ctx context.Context, lost []taskstate.Task) error
	// WriteDLQPending writes the dead letters that DEAD rows still owe (design D11).
	WriteDLQPending(ctx context.Context) error
	// Loops are what else has to be done again and again.
	Loops() []loop
}

// loop is a call that is repeated.
type loop struct {
	What     string
	Interval time.Duration
	Once     func(ctx context.Context) error
}

// Config is what the work on a queue needs of a runner's settings.
type Config struct {
	Policy       taskstate.Policy
	SweepBatch   int
	Reconcile    Reconcile
	PinMax       time.Duration
	TrimInterval time.Duration
}

// Reconcile says how entries that were read and never acknowledged are put in order (design D4).
type Reconcile struct {
	Enabled  bool          // INGEST_REDIS_RECLAIM_ENABLED
	Interval time.Duration // INGEST_REDIS_RECLAIM_INTERVAL_MS
	Idle     time.Duration // INGEST_REDIS_RECLAIM_IDLE_MS; 0 allowed
	Batch    int           // INGEST_REDIS_RECLAIM_BATCH_SIZE: entries of one look
}

// Parts are what the work on a queue stands on.
type Parts struct {
	Store       *local.Store
	Queue       ingestq.Consumer
	Outbox      Outbox
	DeadLetters ingestq.DeadLetterWriter
	Metrics     *local.Metrics
	Tracer      trace.Tracer
}

// ask calls the queue once, with a limit, and notes how it went.
func (p *Parts) ask(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, local.CallLimit)
	defer cancel()
	began := p.Store.Health.Now()
	err := f(ctx)
	if errors.Is(err, ingestq.ErrFull) {
		p.Store.Health.QueueCall(began, nil) // it has answered
		return err
	}
	p.Store.Health.QueueCall(began, err)
	return err
}

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

// New asks once what the queue can do.
func New(cfg Config, parts Parts) (Transport, *Effects) {
	e := newEffects(cfg, parts)
	if e.pending != nil {
		return &pendingEntries{e}, e
	}
	return &committedOffsets{e}, e
}

// full calls batch while it does as much as it may.
func (c *Effects) full(ctx context.Context, batch func(context.Context) (int, error)) error {
	for ctx.Err() == nil {
		n, err := batch(ctx)
		if err != nil || n < c.cfg.SweepBatch {
			return err
		}
	}
	return nil
}
