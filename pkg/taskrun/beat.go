package taskrun

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
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

// beatOnce writes one statement for all claims and the reservation that have something to say, or none.
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
	if err != nil {
		return fmt.Errorf("renew %d leases: %w", len(beats), err)
	}
	crash.Point("worker.after_heartbeat")
	gone := make(map[string]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
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
	for _, h := range r.claims.All() {
		switch h.Watch(now, r.cfg.stallLimit) {
		case local.SilenceNone:
		case local.SilenceStalled:
			r.deps.Log.LogAttrs(h.Ctx(), slog.LevelWarn, "runner: task stalled",
				slog.String("task_id", h.Task.ID), slog.String("stage", string(h.Stage())), slog.String("worker", h.Worker()))
			h.Cancel(local.ErrStalled)
		case local.SilenceHung:
			r.writtenOff(h)
			r.slots.WriteOff(h.Recovery)
			r.m.SlotsLost.Inc()
			r.transport.Release(h.Delivery)
			r.claims.Drop(h) // its lease ends it: from here on it is a task like any other's
		}
	}
}
