package taskrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// recoverPause is the shortest pause between two looks that found work overdue and won none of it:
// others have it locked, or its lease is being revived.
const recoverPause = 10 * time.Millisecond

// leasePause is the shortest pause between two looks for expired leases of which the first won none. Every claim's call wakes once
// when its leases would end, and one look ends the waking of all those that have come to it.
const leasePause = 250 * time.Millisecond

// recoverLoop finds due retries and expired leases in the table, until ctx ends.
func (r *Runner) recoverLoop(ctx context.Context) {
	idle := pause.Backoff{First: recoverPause, Most: r.cfg.RecoveryInterval} // after looks that won nothing
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.nudge:
		case <-timer.C:
		}
		wait, recoveryWaiting, err := r.recoverOnce(ctx, &idle)
		if err != nil {
			r.health.Warn(ctx, "runner: recovery", err)
			wait = r.cfg.RecoveryInterval
		}
		if recoveryWaiting {
			r.awaitSlot(ctx)
			wait = 0
		}
		timer.Reset(wait)
	}
}

// awaitSlot waits until recovery may have a slot; at most the loop's interval, so that what changes in the table is seen.
func (r *Runner) awaitSlot(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RecoveryInterval)
	defer cancel()
	local.Until(ctx, r.slots.Recoverable)
}

// recoverOnce claims what is due and returns when to look again, and whether only a slot is missing.
func (r *Runner) recoverOnce(ctx context.Context, idle *pause.Backoff) (wait time.Duration, recoveryWaiting bool, err error) {
	limit := r.cfg.RecoveryInterval
	if r.takesNothing() {
		r.slots.SetRecoveryWaiting(false)
		return limit, false, nil
	}
	wait, overdue, won := limit, false, 0
	for _, status := range []taskstate.Status{taskstate.StatusRunning, taskstate.StatusRetrying} {
		if status == taskstate.StatusRunning {
			if rest := min(leasePause, limit) - r.deps.Now().Sub(r.leasesSeen); rest > 0 && rest <= leasePause {
				wait = min(wait, rest)
				continue
			}
		}
		next, err := r.nextWake(ctx, status, limit)
		if err != nil {
			return limit, false, err
		}
		n := 0
		if next > 0 {
			wait = min(wait, next)
		} else {
			overdue = true
			if n, recoveryWaiting, err = r.recoverStatus(ctx, status); err != nil || recoveryWaiting {
				return limit, recoveryWaiting, err
			}
			won += n
		}
		if status == taskstate.StatusRunning && n == 0 {
			r.leasesSeen = r.deps.Now()
		}
	}
	if won > 0 {
		idle.Reset()
		return 0, false, nil // look at once for what comes after it; a slot that falls free meanwhile is recovery's, if it waits
	}
	r.slots.SetRecoveryWaiting(false)
	switch {
	case !overdue:
		idle.Reset()
	default: // what is overdue and not to be had makes nothing else late
		wait = min(wait, idle.Next())
	}
	return wait, false, nil
}

// nextWake returns how long until a row of status has to be looked at, at most limit: a lease that expires is taken over only
// half a lease after an outage of the database.
func (r *Runner) nextWake(ctx context.Context, status taskstate.Status, limit time.Duration) (time.Duration, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	next, err := r.store.NextWake(ctx, status, limit)
	if hold := r.health.MayTakeOver(); status == taskstate.StatusRunning && hold > 0 {
		next = max(next, min(hold, limit))
	}
	return next, err
}

// recoverStatus claims due tasks of one status with the slots that recovery may have.
// waiting tells that there is work and no slot.
func (r *Runner) recoverStatus(ctx context.Context, status taskstate.Status) (won int, recoveryWaiting bool, err error) {
	r.isolated.Gate.RLock()
	defer r.isolated.Gate.RUnlock()
	if r.takesNothing() {
		return 0, false, nil
	}
	n := r.slots.TakeRecovery(r.cfg.SweepBatch)
	if n == 0 {
		r.slots.SetRecoveryWaiting(true)
		return 0, true, nil
	}
	used := 0
	defer func() { r.slots.Give(true, n-used) }()
	c := r.newClaim(nil, status == taskstate.StatusRunning)
	defer c.end()
	c.reserving = r.isolated.Begin()
	crash.Point("recovery.after_scan")
	outs, err := c.sweep(ctx, status, n)
	// Ask the very rows what became of them, however long the database is away: what the lost answer claimed has no other holder.
	// Leases are judged in sweeps alone.
	c.req.Takeover = false
	pauses := local.Backoff()
	for unsure := errors.Is(err, taskstate.ErrOutcomeUnknown) && len(c.types) > 0; unsure && err != nil && pause.For(ctx, pauses.Next()); {
		outs, err = c.byIDs(ctx, slices.Sorted(maps.Keys(c.types)))
	}
	for again := unheard(outs); len(again) > 0 && pause.For(ctx, pauses.Next()); again = unheard(outs) {
		if more, err := c.byIDs(ctx, again); err == nil {
			outs = append(without(outs, again), more...)
		}
	}
	if c.reserving && !reservedIn(outs) {
		r.isolated.GiveUp()
	}
	if err != nil {
		return 0, false, err
	}
	for _, o := range outs {
		if r.answer(ctx, c, o, nil) {
			used++
		}
		if o.Err == nil && o.Change != nil {
			won++
		}
	}
	return won, false, nil
}

// without leaves out the outcomes of some tasks.
func without(outs []taskstate.Outcome, ids []string) []taskstate.Outcome {
	return slices.DeleteFunc(slices.Clone(outs), func(o taskstate.Outcome) bool { return slices.Contains(ids, o.TaskID) })
}

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
