package taskrun

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// recoverPause is the shortest pause between two looks that found work overdue and won none of it:
// others have it locked, or its lease is being revived.
const recoverPause = 10 * time.Millisecond

// recovery finds work in the table.
type recovery struct{ *claimer }

// recoverLoop finds due retries and expired leases in the table, until ctx ends.
func (r *recovery) recoverLoop(ctx context.Context) {
	var idle backoffFrom
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
func (r *recovery) awaitSlot(ctx context.Context) {
	timer := time.NewTimer(r.cfg.RecoveryInterval)
	defer timer.Stop()
	for {
		changed := r.slots.Wait()
		if r.slots.Recoverable() > 0 {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// backoffFrom is the pause after looks that won nothing: doubled from recoverPause.
type backoffFrom struct{ next time.Duration }

// after returns the next pause, at most limit.
func (b *backoffFrom) after(limit time.Duration) time.Duration {
	d := max(b.next, recoverPause)
	b.next = min(2*d, limit)
	return min(d, limit)
}

// recoverOnce claims what is due and returns when to look again, and whether only a slot is missing.
func (r *recovery) recoverOnce(ctx context.Context, idle *backoffFrom) (wait time.Duration, recoveryWaiting bool, err error) {
	limit := r.cfg.RecoveryInterval
	if r.takesNothing() {
		r.slots.SetRecoveryWaiting(false)
		return limit, false, nil
	}
	var won int
	takeover, err := r.nextTakeover(ctx, limit)
	if err != nil {
		return limit, false, err
	}
	if takeover <= 0 {
		n, recoveryWaiting, err := r.recoverStatus(ctx, taskstate.StatusRunning)
		if err != nil || recoveryWaiting {
			return limit, recoveryWaiting, err
		}
		won += n
	}
	retry, err := r.nextWake(ctx, taskstate.StatusRetrying, limit)
	if err != nil {
		return limit, false, err
	}
	if retry <= 0 {
		n, recoveryWaiting, err := r.recoverStatus(ctx, taskstate.StatusRetrying)
		if err != nil || recoveryWaiting {
			return limit, recoveryWaiting, err
		}
		won += n
	}
	r.slots.SetRecoveryWaiting(false)
	switch {
	case takeover > 0 && retry > 0:
		idle.next = 0
		return min(takeover, retry, limit), false, nil
	case won > 0:
		idle.next = 0
		return 0, false, nil // look at once for what comes after it
	}
	wait = idle.after(limit)
	for _, next := range []time.Duration{takeover, retry} {
		if next > 0 { // what is overdue and not to be had makes nothing else late
			wait = min(wait, next)
		}
	}
	return wait, false, nil
}

// nextTakeover returns how long until the first lease expires; after an outage of the database not before half a lease.
func (r *recovery) nextTakeover(ctx context.Context, limit time.Duration) (time.Duration, error) {
	next, err := r.nextWake(ctx, taskstate.StatusRunning, limit)
	if err != nil {
		return limit, err
	}
	if wait := r.health.MayTakeOver(); wait > 0 {
		return max(next, min(wait, limit)), nil
	}
	return next, nil
}

// nextWake is Store.NextWake with a limit in time.
func (r *recovery) nextWake(ctx context.Context, status taskstate.Status, limit time.Duration) (time.Duration, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	return r.store.NextWake(ctx, status, limit)
}

// recoverStatus claims due tasks of one status with the slots that recovery may have.
// waiting tells that there is work and no slot.
func (r *recovery) recoverStatus(ctx context.Context, status taskstate.Status) (won int, recoveryWaiting bool, err error) {
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
	var pauses local.Backoff
	for unsure := errors.Is(err, taskstate.ErrOutcomeUnknown) && len(c.types) > 0; unsure && err != nil && pause.For(ctx, pauses.After()); {
		outs, err = c.byIDs(ctx, SortedKeys(c.types))
	}
	for again := unheard(outs); len(again) > 0 && pause.For(ctx, pauses.After()); again = unheard(outs) {
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
		if r.recovered(ctx, c, o) {
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

// recovered does what the answer for one row of a sweep asks for; it reports whether the task runs now.
func (r *recovery) recovered(ctx context.Context, c *claimTx, o taskstate.Outcome) bool {
	if o.Err != nil {
		r.health.Warn(ctx, "runner: recover one task", o.Err, slog.String("task_id", o.TaskID))
		return false
	}
	switch o.Answer {
	case taskstate.AnswerClaimed:
		r.started(ctx, c, o, true, true)
		return true
	case taskstate.AnswerReserved:
		crash.Point("solo.after_reserve")
		r.isolated.Reserve(&local.Reservation{Outcome: o, Epoch: c.m.Epoch, Renewed: r.deps.Now()})
	case taskstate.AnswerDead:
		crash.Point("recovery.after_crash_limit")
		r.m.Count(local.ResultDead, 1)
		r.effects.Died(o.After, c.m.Epoch, r.transport.EntryOf(o.After))
	case taskstate.AnswerIsolated, taskstate.AnswerBusy, taskstate.AnswerNotDue, taskstate.AnswerSkipped, taskstate.AnswerKept:
	case taskstate.AnswerApplied, taskstate.AnswerLost, taskstate.AnswerRefused:
		r.health.Warn(ctx, "runner: recover one task", errUnexpected(o), slog.String("task_id", o.TaskID))
	}
	return false
}
