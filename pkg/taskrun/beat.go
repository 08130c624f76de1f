package taskrun

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// leaseLoop renews the lease of the process and gives up what it does not know to hold, until ctx ends. A process without tasks renews it
// too, so that operators see that it lives. Nothing else that is to be written makes it wait.
func (r *Runner) leaseLoop(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.heartbeat())
	defer ticker.Stop()
	var renewed, looked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := r.deps.Now()
		if local.Elapsed(now, looked) >= r.cfg.Policy.Lease/3 {
			looked = now
			empty, _ := r.claims.Empty()
			if err := r.drainOnce(ctx, empty && !r.asking.Open() && !r.isolated.Active()); err != nil {
				r.health.Warn(ctx, "runner: ask whether it is to drain", err)
			}
		}
		if local.Elapsed(now, renewed) < r.cfg.Policy.Lease/3 {
			continue
		}
		if err := r.renewOnce(ctx); err != nil {
			r.health.Warn(ctx, "runner: renew the lease", err)
			continue
		}
		renewed = now
		if err := r.forgottenOnce(ctx); err != nil {
			r.health.Warn(ctx, "runner: look for what is forgotten", err)
		}
	}
}

// renewOnce lets the lease last from now on.
func (r *Runner) renewOnce(ctx context.Context) error {
	lease := r.cfg.Policy.Lease
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(lease/3, r.cfg.heartbeat()))
	defer cancel()
	return r.store.Renew(ctx, r.cfg.Process, lease, r.slots.Limit())
}

// forgottenOnce gives up the RUNNING tasks of this process of which it knows nothing: its lease would keep them for as long as it
// lives (design D22). Whatever it holds after the table was read, it may have held then: that is asked last. The look goes further ahead
// than the next one comes late, so that nobody else has to look at this process's calls.
func (r *Runner) forgottenOnce(ctx context.Context) error {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	held, err := r.store.Held(ctx, r.cfg.Process, r.cfg.Policy.Lease/2)
	if err != nil {
		return err
	}
	held = slices.DeleteFunc(held, func(t taskstate.HeldTask) bool {
		return r.asking.Has(t.Owner) || r.isolated.Holds(t.Owner) || r.claims.Has(t.TaskID, t.Fence)
	})
	return r.abandon(ctx, held)
}

// abandon gives tasks up: others take them over when the lease would have ended.
func (r *Runner) abandon(ctx context.Context, tasks []taskstate.HeldTask) error {
	if len(tasks) == 0 {
		return nil
	}
	ids, of := make([]string, len(tasks)), make(map[string]taskstate.HeldTask, len(tasks))
	for i, t := range tasks {
		ids[i], of[t.TaskID] = t.TaskID, t
	}
	outs, err := r.store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Abandon(m, t, of[t.ID])
		}),
	})
	if err != nil {
		return fmt.Errorf("give up %d tasks: %w", len(tasks), err)
	}
	for _, o := range outs {
		if o.Err == nil && o.Answer == taskstate.AnswerApplied {
			r.deps.Log.WarnContext(ctx, "runner: a task is given up: the row names this process, which does not run it", "task_id", o.TaskID)
		}
	}
	return nil
}

// beatLoop writes progress, asks whether claims hold and watches for silence, until ctx ends.
func (r *Runner) beatLoop(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.heartbeat())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		r.wakeOnce(ctx)
		r.watchOnce(ctx)
		if err := r.beatOnce(ctx); err != nil {
			r.health.Warn(ctx, "runner: heartbeat", err)
		}
		r.wakeOnce(ctx)
	}
}

// wakeOnce notices that the process stood still: that was no silence of its runs. The heartbeat asks for every claim.
func (r *Runner) wakeOnce(ctx context.Context) {
	stood, counted := r.health.Runs()
	if stood == 0 {
		return
	}
	all := r.claims.All()
	for _, h := range all {
		h.Woke(counted)
	}
	r.deps.Log.WarnContext(ctx, "runner: the process stood still; it asks whether it still holds its tasks",
		"seconds", stood.Seconds(), "tasks", len(all))
}

// beatOnce sends one heartbeat of all claims that have something to say or have not asked for long, and the reservation, or none.
func (r *Runner) beatOnce(ctx context.Context) error {
	now, lease := r.deps.Now(), r.cfg.Policy.Lease
	var beats []taskstate.Beat
	var held []*local.Claim
	for _, h := range r.claims.All() {
		if b, due := h.Beat(now, lease); due {
			beats, held = append(beats, b), append(held, h)
		}
	}
	res := r.isolated.Beat(now, lease)
	if res != nil {
		beats = append(beats, res.Beat())
	}
	if len(beats) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(lease/3, r.cfg.heartbeat()))
	defer cancel()
	crash.Point("worker.on_heartbeat")
	lost, err := r.store.Heartbeat(ctx, lease, beats)
	gone := make(map[string]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	if err != nil {
		for _, h := range held {
			if gone[h.Task.ID] {
				h.Lose()
			}
		}
		return fmt.Errorf("heartbeat of %d tasks: %w", len(beats), err)
	}
	crash.Point("worker.after_heartbeat")
	for i, h := range held {
		if gone[h.Task.ID] {
			h.Lose()
			continue
		}
		h.Beaten(beats[i], now)
	}
	if res != nil {
		r.isolated.Beaten(res, now, gone[res.Outcome.TaskID])
	}
	return nil
}

// watchOnce cancels runs that report nothing for their stage's limit, and gives up those that do not return (design D15).
func (r *Runner) watchOnce(ctx context.Context) {
	now := r.deps.Now()
	var hung []taskstate.HeldTask
	for _, h := range r.claims.All() {
		switch h.Watch(now, r.cfg.stallLimit) {
		case local.SilenceNone:
		case local.SilenceStalled:
			r.deps.Log.LogAttrs(h.Ctx(), slog.LevelWarn, "runner: task stalled",
				slog.String("task_id", h.Task.ID), slog.String("stage", string(h.At().Stage)), slog.String("worker", h.Worker()))
			h.Cancel(local.ErrStalled)
		case local.SilenceHung:
			r.writtenOff(h)
			r.slots.WriteOff(h.Recovery)
			r.m.SlotsLost.Inc()
			r.transport.Release(h.Delivery)
			r.claims.Drop(h) // from here on it is a task like any other's
			hung = append(hung, taskstate.HeldTask{TaskID: h.Task.ID, Fence: h.Token.Fence, Owner: h.Owner})
		}
	}
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	if err := r.abandon(ctx, hung); err != nil {
		r.health.Warn(ctx, "runner: give up runs that hang", err) // the next look at what is forgotten does it
	}
}
