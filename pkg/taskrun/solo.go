package taskrun

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// reservation is a task on its isolated run that this process will run alone (design D6).
type reservation struct {
	outcome  taskstate.Outcome // Before as found, After with lease_owner and lease
	epoch    int64
	delivery *ingestq.Delivery // what brought it; nil: recovery found it
	renewed  time.Time
	lost     bool
	running  bool // set by the isolated loop, under isolated.mu
}

// beat is the heartbeat of a reservation: status and fence stay, the owner is this process's.
func (res *reservation) beat() taskstate.Beat {
	t := res.outcome.After
	return taskstate.Beat{
		TaskID: t.ID, Status: t.Status, Owner: t.LeaseOwner, Renew: true,
		Token: taskstate.Token{Epoch: res.epoch, Fence: t.Fence},
	}
}

// isolation keeps the one reservation of a process.
type isolation struct {
	gate sync.RWMutex // claims of many hold it for reading, the claim alone for writing

	mu      sync.Mutex
	begun   bool // some claim may reserve now: no other may
	res     *reservation
	changed signal
}

func newIsolation() *isolation { return &isolation{} }

// begin asks for the right to reserve in one claim; reserve or giveUp must follow when it is given.
func (s *isolation) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		return false
	}
	s.begun = true
	return true
}

// giveUp returns the right: nothing was reserved, or the reservation is over.
func (s *isolation) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.res = false, nil
	s.changed.ring()
}

// reserve notes the reservation that was written.
func (s *isolation) reserve(res *reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.res = res
	s.changed.ring()
}

// active reports whether the process takes nothing new because of a reservation.
func (s *isolation) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.res != nil
}

// state returns the reservation, whether it was lost, and what is closed at the next change.
func (s *isolation) state() (res *reservation, lost bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.res, s.res != nil && s.res.lost, s.changed.wait()
}

// awaitNone waits until there is no reservation; it reports whether ctx goes on.
func (s *isolation) awaitNone(ctx context.Context) bool {
	for {
		res, _, changed := s.state()
		if res == nil {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// await waits for a reservation; nil at the end of ctx.
func (s *isolation) await(ctx context.Context) *reservation {
	for {
		res, _, changed := s.state()
		if res != nil {
			return res
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// beat returns the reservation when its lease needs to be renewed.
func (s *isolation) beat(now time.Time, lease time.Duration) *reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.res == nil || s.res.running || s.res.lost || elapsed(now, s.res.renewed) < lease/3 {
		return nil
	}
	return s.res
}

// beaten notes how a reservation's heartbeat ended.
func (s *isolation) beaten(res *reservation, now time.Time, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost {
		res.lost = true
		s.changed.ring()
		return
	}
	res.renewed = now
}

// run notes that the reserved task is claimed: it is a task like others from here on.
func (s *isolation) run(res *reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res.running = true
}

// take returns the reservation for its release at a stop; nil when there is none, or its task runs.
func (s *isolation) take() *reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.res == nil || s.res.running {
		return nil
	}
	return s.res
}

// isolatedLoop runs reserved tasks: it waits until the process holds nothing, claims the one alone, waits for its end, goes on.
func (r *Runner) isolatedLoop(ctx context.Context) {
	for {
		res := r.isolated.await(ctx)
		if res == nil {
			return
		}
		r.deps.Log.InfoContext(ctx, "runner: a task gets its last chance, alone", "task_id", res.outcome.TaskID)
		if !r.fit.await(ctx) || !r.awaitAlone(ctx) {
			return // the stop releases the reservation
		}
		if !r.claimAlone(ctx, res) {
			return
		}
		if res.running && !r.awaitEnd(ctx) {
			return
		}
		r.isolated.giveUp()
	}
}

// awaitAlone waits until the process holds nothing, or the reservation is lost; it reports whether ctx goes on.
func (r *Runner) awaitAlone(ctx context.Context) bool {
	for {
		empty, drained := r.holds.empty()
		_, lost, changed := r.isolated.state()
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

// awaitEnd waits until the task that runs alone is finished; it reports whether ctx goes on.
func (r *Runner) awaitEnd(ctx context.Context) bool {
	for {
		empty, drained := r.holds.empty()
		if empty {
			return ctx.Err() == nil
		}
		select {
		case <-drained:
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
func (r *Runner) claimAlone(ctx context.Context, res *reservation) bool {
	id := res.outcome.TaskID
	var deliveries map[string]string
	if res.delivery != nil {
		deliveries = map[string]string{id: res.delivery.ID}
	}
	c := r.newClaim(deliveries, false)
	defer c.end()
	var wait backoff
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
		r.health.warn(ctx, "runner: claim a reserved task", err, slog.String("task_id", id))
		if !pause(ctx, wait.after()) {
			return false
		}
	}
}

// tryAlone is one try of claimAlone.
func (r *Runner) tryAlone(ctx context.Context, c *claimTx, res *reservation) error {
	r.isolated.gate.Lock()
	defer r.isolated.gate.Unlock()
	var ds []ingestq.Delivery
	if res.delivery != nil {
		ds = []ingestq.Delivery{*res.delivery}
	}
	_, lost, _ := r.isolated.state()
	// Claims that had begun before the reservation are over now, and nobody takes more while the gate is shut.
	if empty, _ := r.holds.empty(); !empty && !lost {
		return errNotAlone
	}
	if r.asking.unsure() && !r.asking.unheardOf(c.req.Owner) {
		return errUnheard
	}
	c.req.Alone, c.req.Mine = !lost, !lost
	crash.Point("solo.before_claim")
	outs, err := c.byIDs(ctx, []string{res.outcome.TaskID})
	if err != nil {
		return err
	}
	o := outs[0]
	switch {
	case o.Err == nil && o.Answer == taskstate.AnswerClaimed:
		crash.Point("solo.after_claim")
		r.isolated.run(res)
		r.slots.takeAlone()
		r.answerAlone(ctx, c, o, ds)
	case len(ds) > 0:
		r.answer(ctx, c, o, ds)
	default:
		r.recovered(ctx, c, o)
	}
	return nil
}

// answerAlone starts the task that was claimed alone. Its slot is recovery's, whoever found it: all are free.
func (r *Runner) answerAlone(ctx context.Context, c *claimTx, o taskstate.Outcome, ds []ingestq.Delivery) {
	if len(ds) == 0 {
		r.started(ctx, c, o, true, true)
		return
	}
	r.ackReplaced(o.Before.Delivery, ds[0].ID)
	r.started(ctx, c, o, true, false)
}

// releaseReservation drops a reservation at a stop: the row is as free as before.
func (r *Runner) releaseReservation(ctx context.Context) {
	res := r.isolated.take()
	if res == nil {
		return
	}
	defer r.isolated.giveUp()
	ctx, cancel := call(ctx)
	defer cancel()
	owner := res.outcome.After.LeaseOwner
	outs, err := r.apply(ctx, taskstate.Batch{
		IDs: []string{res.outcome.TaskID}, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Release(r.cfg.Policy, m, t, owner)
		}),
	})
	if err != nil || outs[0].Err != nil {
		r.health.warn(ctx, "runner: release a reservation", err, slog.String("task_id", res.outcome.TaskID))
		return // it expires by itself
	}
	crash.Point("solo.after_release")
	if res.delivery != nil && r.transport.Pending { // a record that was not finished is read again
		r.leaveIsolated(ctx, outs[0].After, *res.delivery)
	}
}
