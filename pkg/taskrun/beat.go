package taskrun

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
)

// beatLoop renews leases, writes progress and watches for silence, until ctx ends.
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
			r.health.warn(ctx, "runner: heartbeat", err)
		}
		r.wakeOnce(ctx)
	}
}

// wakeOnce notices that the process stood still: that was no silence of its runs. The heartbeat asks for every claim.
func (r *Runner) wakeOnce(ctx context.Context) {
	stood, counted := r.health.runs()
	if stood == 0 {
		return
	}
	all := r.holds.all()
	for _, h := range all {
		h.woke(counted)
	}
	r.deps.Log.WarnContext(ctx, "runner: the process stood still; it asks whether it still holds its tasks",
		"seconds", stood.Seconds(), "tasks", len(all))
}

// beatOnce writes one statement for all claims and the reservation that have something to say, or none.
func (r *Runner) beatOnce(ctx context.Context) error {
	now, lease := r.deps.Now(), r.cfg.Policy.Lease
	var beats []taskstate.Beat
	var held []*claim
	for _, h := range r.holds.all() {
		if b, due := h.beat(now, lease); due {
			beats, held = append(beats, b), append(held, h)
		}
	}
	res := r.isolated.beat(now, lease)
	if res != nil {
		beats = append(beats, res.beat())
	}
	if len(beats) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(lease/3, r.cfg.heartbeat()))
	defer cancel()
	crash.Point("worker.on_heartbeat")
	lost, err := r.deps.Store.Heartbeat(ctx, lease, beats)
	if r.storeDone(now, err) != nil {
		return fmt.Errorf("renew %d leases: %w", len(beats), err)
	}
	crash.Point("worker.after_heartbeat")
	gone := make(map[string]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	for i, h := range held {
		if gone[h.task.ID] {
			h.lose()
			continue
		}
		h.beaten(beats[i], now)
	}
	if res != nil {
		r.isolated.beaten(res, now, gone[res.outcome.TaskID])
	}
	return nil
}

// watchOnce cancels runs that report nothing for their stage's limit, and gives up those that do not return (design D15).
func (r *Runner) watchOnce(ctx context.Context) {
	now := r.deps.Now()
	for _, h := range r.holds.all() {
		switch h.watch(now, r.cfg.stallLimit) {
		case silenceNone:
		case silenceStalled:
			r.deps.Log.LogAttrs(h.ctx, slog.LevelWarn, "runner: task stalled",
				slog.String("task_id", h.task.ID), slog.String("stage", string(h.stage())))
			h.cancel(ErrStalled)
		case silenceHung:
			r.writtenOff(h)
			r.slots.writeOff(h.recovery)
			r.m.slotsLost.Inc()
			r.release(h)
			r.holds.drop(h) // its lease ends it: from here on it is a task like any other's
		}
	}
}
