package taskrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

const dueLimit = 10_000 // rows of one status that the gauge of due work counts

// watermarkOnce adds lost deliveries again (design D5). Of a healthy backlog, however long, it reads not one row.
func (r *Runner) watermarkOnce(ctx context.Context) error {
	watermark, err := r.watermark(ctx)
	if errors.Is(err, ingestq.ErrNoWatermark) {
		return nil
	}
	if err != nil {
		return err
	}
	crash.Point("promise.after_scan")
	before := watermark.Add(-r.cfg.Policy.Slack)
	for ctx.Err() == nil {
		n, err := r.enqueue(ctx, watermark, before)
		if err != nil || n < r.cfg.SweepBatch {
			return err
		}
	}
	return nil
}

// watermark is H by the database's clock: what was promised before it, and the slack, has been read by somebody.
// The database is asked first: when everything was read, "now" must not be later than the look at the queue.
func (r *Runner) watermark(ctx context.Context) (time.Time, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	m, err := r.store.Moment(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	began := r.deps.Now()
	h, err := r.deps.Queue.Watermark(ctx)
	if errors.Is(err, ingestq.ErrNoWatermark) {
		return time.Time{}, err
	}
	r.health.QueueCall(began, err)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the queue's horizon: %w", err)
	}
	if h.At.IsZero() {
		return m.Now, nil
	}
	// The slack grows by the measured difference of the clocks, whichever of them is ahead.
	at := h.At.Add(-h.Now.Sub(m.Now).Abs())
	if at.After(m.Now) {
		return m.Now, nil
	}
	return at, nil
}

// enqueue renews the promises of one batch of lost deliveries and adds them; it returns how many rows it read.
func (r *Runner) enqueue(ctx context.Context, watermark, before time.Time) (int, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	outs, err := r.store.Sweep(ctx, taskstate.Sweep{
		Status: taskstate.StatusQueued, Before: before, Limit: r.cfg.SweepBatch,
		Decide: r.transport.DecideLost(watermark),
	})
	if err != nil {
		return 0, fmt.Errorf("promise lost deliveries: %w", err)
	}
	moved := 0
	var lost []taskstate.Task
	for _, o := range outs {
		if o.Err != nil || o.Answer != taskstate.AnswerApplied {
			continue
		}
		if moved++; o.Change.Deliver {
			lost = append(lost, o.After)
		}
	}
	if len(lost) > 0 {
		crash.Point("promise.after_commit")
	}
	r.m.EnqueuedAgain.Add(float64(len(lost)))
	if moved == 0 {
		return 0, nil // all kept: nothing moves by looking again at once
	}
	return len(outs), r.transport.Enqueue(ctx, lost)
}

// measureOnce sets the gauges of due work and listens whether new deliveries still come.
func (r *Runner) measureOnce(ctx context.Context) error {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	n, oldest, err := r.store.Due(ctx, dueLimit)
	if err != nil {
		return fmt.Errorf("count due work: %w", err)
	}
	r.m.DueWork.Set(float64(n))
	r.m.OldestDue.Set(oldest.Seconds())
	if !r.cfg.MainLoop {
		return nil
	}
	began := r.deps.Now()
	stats, err := r.deps.Queue.Stats(ctx)
	r.health.QueueCall(began, err)
	if err != nil {
		return fmt.Errorf("read the queue's counts: %w", err)
	}
	waiting := stats.Lag > 0 || (stats.Lag < 0 && n > 0 && oldest > stallAfter)
	may := r.slots.Idle() > 0 && !r.takesNothing()
	r.health.Waits(waiting && may, stallAfter)
	return nil
}
