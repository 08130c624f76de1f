package taskrun

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Runner claims tasks, runs them and finishes them. Its one entry is Run.
type Runner struct {
	cfg       Config
	deps      Deps
	transport ingestq.Transport
	m         *metrics
	health    *health
	slots     *slots
	holds     *claims
	asking    *asking
	effects   *queueEffects
	isolated  *isolation
	fit       fitness
	// destination names the queue in traces; an append to it copies.
	destination []attribute.KeyValue

	outcomes chan outcome
	nudge    chan struct{}  // the recovery loop should look when the next row wakes: sooner than it thought
	calls    atomic.Int64   // makes lease owners unique
	ended    chan struct{}  // closed when nobody takes outcomes any more
	runs     sync.WaitGroup // goroutines of tasks
	running  atomic.Bool
	stalled  stallWatch
}

// New returns a Runner. It panics when cfg or deps are not valid: check Config.Validate before.
func New(cfg Config, deps Deps) *Runner {
	if err := cfg.Validate(); err != nil {
		panic(fmt.Errorf("taskrun: %w", err))
	}
	if err := deps.validate(); err != nil {
		panic(err)
	}
	r := &Runner{
		cfg: cfg, deps: deps, transport: deps.Queue.Transport(), m: newMetrics(deps.Metrics),
		health: newHealth(cfg, deps.Log, deps.Now), slots: newSlots(cfg.Concurrency), holds: newClaims(), asking: newAsking(), isolated: newIsolation(),
		// One outcome per slot may wait: beyond that a run keeps its slot, and so nothing new is claimed.
		outcomes: make(chan outcome, cfg.Concurrency),
		nudge:    make(chan struct{}, 1),
		ended:    make(chan struct{}),

		destination: destinationOf(deps.Queue),
	}
	r.effects = newQueueEffects(r)
	if deps.Fit != nil {
		r.fit.err = errUnchecked
	}
	return r
}

// Ready returns nil when the runner takes work; otherwise why not.
func (r *Runner) Ready() error {
	if err := r.fit.problem(); err != nil {
		return fmt.Errorf("no work is taken: %w", err)
	}
	if err := r.health.problems(); err != nil {
		return err
	}
	if left, total := r.slots.left(); left < (total+1)/2 {
		return fmt.Errorf("%d of %d slots are held by runs that do not end", total-left, total)
	}
	return nil
}

// Run takes work until ctx ends, then lets running tasks end for a while, hands the rest back and returns nil.
// No trouble of the store or the queue ends it. It may be called once.
func (r *Runner) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return fmt.Errorf("run %s: already run", r.cfg.Process)
	}
	r.health.set(func(h *health) { h.awake = h.now() }) // it may have waited for its servers
	base := context.WithoutCancel(ctx)
	late, endLate := context.WithCancel(base) // what must outlive ctx until all is handed back
	defer endLate()
	var early, rest errgroup.Group
	r.goLate(late, &rest)
	r.goEarly(ctx, &early)
	r.health.set(func(h *health) { h.started = true })
	r.deps.Log.InfoContext(ctx, "runner: started", "process", r.cfg.Process, "slots", r.cfg.Concurrency,
		"main_loop", r.cfg.MainLoop, "recovery", r.cfg.Recovery)

	<-ctx.Done()
	r.health.set(func(h *health) { h.stopping = true })
	err := early.Wait()
	if y, ok := r.deps.Queue.(ingestq.Yielder); ok {
		y.Yield() // others need not wait until the last task here has ended
	}
	r.stop(base)
	endLate()
	if lateErr := rest.Wait(); err == nil {
		err = lateErr
	}
	r.deps.Log.InfoContext(base, "runner: stopped", "process", r.cfg.Process, "left_to_their_leases", len(r.holds.all()))
	return err
}

// goEarly starts what ends with ctx: everything that takes new work.
func (r *Runner) goEarly(ctx context.Context, g *errgroup.Group) {
	spawn := func(f func(context.Context)) { g.Go(func() error { f(ctx); return nil }) }
	if r.deps.Fit != nil {
		spawn(r.fitLoop)
	}
	spawn(r.isolatedLoop)
	if r.cfg.MainLoop {
		for range deliverWorkers {
			spawn(r.deliverLoop)
		}
	}
	spawn(func(ctx context.Context) { r.every(ctx, "measure due work", r.cfg.SweepInterval, r.measureOnce) })
	if !r.cfg.Recovery {
		return
	}
	spawn(r.recoverLoop)
	spawn(func(ctx context.Context) {
		r.every(ctx, "promise lost deliveries", r.cfg.SweepInterval, r.watermarkOnce)
	})
	spawn(func(ctx context.Context) {
		r.every(ctx, "write owed dead letters", r.cfg.SweepInterval, r.dlqPendingOnce)
	})
	if !r.transport.Pending {
		return // nothing stays with the group: there is nothing to settle or trim
	}
	spawn(func(ctx context.Context) { r.every(ctx, "trim the stream", r.cfg.TrimInterval, r.trimOnce) })
	if r.cfg.Reconcile.Enabled {
		spawn(func(ctx context.Context) {
			r.every(ctx, "settle pending entries", r.cfg.Reconcile.Interval, r.reconcileOnce)
		})
	}
}

// goLate starts what ends after the last task: heartbeats, outcomes, and the member of the group.
func (r *Runner) goLate(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { r.beatLoop(ctx); return nil })
	g.Go(func() error { r.finishLoop(ctx); return nil })
	g.Go(func() error { r.effects.loop(ctx); return nil })
	g.Go(func() error {
		var wait backoff
		for {
			err := r.deps.Queue.Run(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the end of ctx is the way to end
			}
			r.health.warn(ctx, "runner: group membership ended", err)
			if !pause(ctx, wait.after()) {
				return nil
			}
		}
	})
}

// every calls once at the start and then in each interval, until ctx ends.
func (r *Runner) every(ctx context.Context, what string, interval time.Duration, once func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := once(ctx); err != nil && ctx.Err() == nil {
			r.health.warn(ctx, "runner: "+what, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// owner names this call in lease_owner: "process/token".
func (r *Runner) owner() string {
	return r.cfg.Process + "/" + strconv.FormatInt(r.calls.Add(1), 36)
}

// call bounds a call that must not be cut off by the end of ctx: a commit whose answer is not waited for is a claim nobody runs.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callLimit)
}

// handler returns who does tasks of a type; nil: nobody.
func (r *Runner) handler(typ string) Handler {
	if k, ok := r.deps.Handlers[typ]; ok {
		return k
	}
	return r.deps.Fallback
}

// wake tells the recovery loop of a retry that is due in d, if it might sleep longer than that.
func (r *Runner) wake(d time.Duration) {
	if d >= r.cfg.RecoveryInterval {
		return
	}
	select {
	case r.nudge <- struct{}{}:
	default: // it is about to look anyway
	}
}

// stop ends what still runs when nothing new is taken any more. A stop is not a failure: it counts no attempt.
func (r *Runner) stop(ctx context.Context) {
	r.releaseReservation(ctx)
	if !r.drained(ctx, r.cfg.StopGrace) {
		for _, h := range r.holds.all() {
			h.cancel(ErrStopping)
		}
		r.drained(ctx, r.cfg.handBack())
	}
	crash.Point("worker.in_stop")
	close(r.ended)
	flush, cancel := context.WithTimeout(ctx, flushLimit)
	defer cancel()
	r.effects.flush(flush)
}

// drained waits until nothing is held, at most limit.
func (r *Runner) drained(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		empty, changed := r.holds.empty()
		if empty {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// storeDone counts a store call's end for readiness and the outage rule; it answers err.
func (r *Runner) storeDone(began time.Time, err error) error {
	if err == nil || unavailable(err) {
		r.health.storeCall(began, err)
	}
	return err
}

// apply is Store.Apply for parts that have rows of several tasks: when a hook's error ends the whole batch,
// it is tried row by row, so that one bad row fails alone (design D9).
func (r *Runner) apply(ctx context.Context, b taskstate.Batch) ([]taskstate.Outcome, error) {
	began := r.deps.Now()
	outs, err := r.deps.Store.Apply(ctx, b)
	if r.storeDone(began, err) == nil || unavailable(err) {
		return outs, err
	}
	if len(b.IDs) == 1 {
		return []taskstate.Outcome{{Decision: taskstate.Decision{TaskID: b.IDs[0]}, Err: err}}, nil
	}
	outs = outs[:0]
	for _, id := range b.IDs {
		one := b
		one.IDs = []string{id}
		o, err := r.apply(ctx, one)
		if err != nil {
			o = []taskstate.Outcome{{Decision: taskstate.Decision{TaskID: id}, Err: err}}
		}
		outs = append(outs, o...)
	}
	return outs, nil
}
