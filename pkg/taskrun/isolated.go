package taskrun

import (
	"context"
	"errors"
	"log/slog"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// isolatedLoop runs reserved tasks, each on its last run alone (design D6): it waits until the process holds nothing, claims the one alone, waits for its end, goes on.
func (r *Runner) isolatedLoop(ctx context.Context) {
	for {
		res := r.isolated.Await(ctx)
		if res == nil {
			return
		}
		r.deps.Log.InfoContext(ctx, "runner: a task gets its last chance, alone", "task_id", res.Outcome.TaskID)
		if !r.fit.Await(ctx) || !r.awaitAlone(ctx) {
			return // the stop releases the reservation
		}
		if !r.claimAlone(ctx, res) {
			return
		}
		if res.Running && !local.Until(ctx, r.claims.Empty) {
			return
		}
		r.isolated.GiveUp()
	}
}

// awaitAlone waits until the process holds nothing, or the reservation is lost; it reports whether ctx goes on.
func (r *Runner) awaitAlone(ctx context.Context) bool {
	for {
		empty, drained := r.claims.Empty()
		_, lost, changed := r.isolated.State()
		if empty || lost {
			return ctx.Err() == nil
		}
		select {
		case <-drained:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// errNotAlone: a claim that was in flight when the process had nothing left has won a task meanwhile.
var errNotAlone = errors.New("the process holds a task again")

// errUnheard: a claim whose COMMIT had no answer may have won a task.
var errUnheard = errors.New("it is not known yet what the process holds")

// claimAlone claims the reserved task as the only one of this process; it reports whether ctx goes on.
// When it is not to be had any more (cancelled, suspended, taken after an outage) only its delivery is put in order.
func (r *Runner) claimAlone(ctx context.Context, res *local.Reservation) bool {
	id := res.Outcome.TaskID
	deliveries := map[string]string{}
	for _, d := range res.Deliveries {
		deliveries[id] = d.ID
	}
	c := r.newClaim(deliveries, false)
	defer c.end()
	c.alone = true
	wait := local.Backoff()
	for {
		err := r.tryAlone(ctx, c, res)
		if err == nil {
			return true
		}
		if errors.Is(err, errNotAlone) {
			if !r.awaitAlone(ctx) {
				return false
			}
			continue
		}
		r.health.Warn(ctx, "runner: claim a reserved task", err, slog.String("task_id", id))
		if !pause.For(ctx, wait.Next()) {
			return false
		}
	}
}

// tryAlone is one try of claimAlone.
func (r *Runner) tryAlone(ctx context.Context, c *claimTx, res *local.Reservation) error {
	r.isolated.Gate.Lock()
	defer r.isolated.Gate.Unlock()
	_, lost, _ := r.isolated.State()
	// Claims that had begun before the reservation are over now, and nobody takes more while the gate is shut.
	if empty, _ := r.claims.Empty(); !empty && !lost {
		return errNotAlone
	}
	if r.asking.Unsure() && !r.asking.UnheardOf(c.req.Owner) {
		return errUnheard
	}
	c.req.Alone, c.req.Mine = !lost, !lost
	crash.Point("solo.before_claim")
	outs, err := c.byIDs(ctx, []string{res.Outcome.TaskID})
	if err != nil {
		return err
	}
	o := outs[0]
	if o.Err == nil && o.Answer == taskstate.AnswerClaimed {
		crash.Point("solo.after_claim")
		r.isolated.Run(res)
		r.slots.TakeAlone()
	}
	r.answer(ctx, c, o, res.Deliveries)
	return nil
}

// releaseReservation drops a reservation at a stop: the row is as free as before.
func (r *Runner) releaseReservation(ctx context.Context) {
	res := r.isolated.Take()
	if res == nil {
		return
	}
	defer r.isolated.GiveUp()
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	owner := res.Outcome.After.LeaseOwner
	outs, err := r.store.Apply(ctx, taskstate.Batch{
		IDs: []string{res.Outcome.TaskID}, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Release(r.cfg.Policy, m, t, owner)
		}),
	})
	if err != nil || outs[0].Err != nil {
		r.health.Warn(ctx, "runner: release a reservation", err, slog.String("task_id", res.Outcome.TaskID))
		return // it expires by itself
	}
	crash.Point("solo.after_release")
	for _, d := range res.Deliveries {
		r.transport.HandBackReserved(ctx, outs[0].After, d)
	}
}
