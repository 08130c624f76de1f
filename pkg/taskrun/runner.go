package taskrun

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/delivery"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
)

// Runner claims tasks, runs them and finishes them. Its one entry is Run.
type Runner struct {
	cfg       Config
	deps      Deps
	store     *local.Store
	transport delivery.Transport
	effects   *delivery.Effects
	m         *local.Metrics
	health    *local.Health
	slots     *local.Slots
	claims    *local.Claims
	asking    *local.Calls
	isolated  *local.Isolation
	fit       local.Fitness
	draining  local.Fitness // an operator drains the process
	left      local.Fitness // drained, it has left its group

	nudge chan struct{} // the recovery loop should look when the next row wakes: sooner than it thought
	calls atomic.Int64  // makes lease owners unique
	// leasesSeen is when the recovery loop, which alone uses it, last looked for expired leases and won none.
	leasesSeen time.Time

	jobs     chan *local.Claim // to workers that have nothing to do
	outcomes chan outcome      // one for each slot: one beyond that keeps its slot, and so nothing new is claimed
	relief   chan struct{}     // a full batch of outcomes waits
	ended    chan struct{}     // closed when nobody takes outcomes any more
	running  atomic.Bool
}

// New returns a Runner. It panics when cfg or deps are not valid: check Config.Validate before.
func New(cfg Config, deps Deps) *Runner {
	if err := cfg.Validate(); err != nil {
		panic(fmt.Errorf("taskrun: %w", err))
	}
	if err := deps.validate(); err != nil {
		panic(err)
	}
	slots, most := cfg.slots()
	outcomes := make(chan outcome, most)
	r := &Runner{
		cfg: cfg, deps: deps, m: local.NewMetrics(deps.Metrics), health: local.NewHealth(cfg.heartbeat(), cfg.Policy.Lease, deps.Log, deps.Now),
		slots: local.NewSlots(slots, most, func() int { return len(outcomes) }), claims: local.NewClaims(), asking: local.NewCalls(), isolated: &local.Isolation{},
		nudge: make(chan struct{}, 1),
		jobs:  make(chan *local.Claim), outcomes: outcomes, relief: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if deps.Fit != nil {
		r.fit.Err = local.ErrUnchecked
	}
	r.store = &local.Store{Database: deps.Store, Health: r.health}
	r.transport, r.effects = delivery.New(cfg.queue(), delivery.Parts{
		Store: r.store, Queue: deps.Queue, Outbox: deps.Outbox, DeadLetters: deps.DeadLetters, Metrics: r.m, Tracer: deps.Tracer,
	})
	return r
}

// Ready returns nil when the runner takes work; otherwise why not.
func (r *Runner) Ready() error {
	if err := r.fit.Problem(); err != nil {
		return fmt.Errorf("no work is taken: %w", err)
	}
	if err := r.draining.Problem(); err != nil {
		return fmt.Errorf("no work is taken: %w", err)
	}
	if err := r.health.Problems(); err != nil {
		return err
	}
	if left, total := r.slots.Left(); left < (total+1)/2 {
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
	r.health.Set(func(h *local.Health) { h.Awake = h.Now() }) // it may have waited for its servers
	base := context.WithoutCancel(ctx)
	late, endLate := context.WithCancel(base) // what must outlive ctx until all is handed back
	defer endLate()
	var early, rest sync.WaitGroup
	r.goLate(late, &rest)
	r.goEarly(ctx, &early)
	r.health.Set(func(h *local.Health) { h.Started = true })
	r.deps.Log.InfoContext(ctx, "runner: started", "process", r.cfg.Process, "slots", r.slots.UsableNow(),
		"main_loop", r.cfg.MainLoop, "recovery", r.cfg.Recovery)

	<-ctx.Done()
	r.health.Set(func(h *local.Health) { h.Stopping = true })
	early.Wait()
	if y, ok := r.deps.Queue.(ingestq.Yielder); ok {
		y.Yield() // others need not wait until the last task here has ended
	}
	r.stop(base)
	endLate()
	rest.Wait()
	r.deps.Log.InfoContext(base, "runner: stopped", "process", r.cfg.Process, "left_to_their_leases", len(r.claims.All()))
	return nil
}

// goEarly starts what ends with ctx: everything that takes new work.
func (r *Runner) goEarly(ctx context.Context, g *sync.WaitGroup) {
	spawn := func(f func(context.Context)) { g.Go(func() { f(ctx) }) }
	repeat := func(what string, interval time.Duration, once func(context.Context) error) {
		g.Go(func() { r.every(ctx, what, interval, once) })
	}
	if r.deps.Fit != nil {
		spawn(r.fitLoop)
	}
	spawn(r.isolatedLoop)
	if r.cfg.MainLoop {
		for range deliverWorkers {
			spawn(r.deliverLoop)
		}
	}
	repeat("measure due work", r.cfg.SweepInterval, r.measureOnce)
	if !r.cfg.Recovery {
		return
	}
	spawn(r.recoverLoop)
	repeat("enqueue lost deliveries", r.cfg.SweepInterval, r.watermarkOnce)
	repeat("write owed dead letters", r.cfg.SweepInterval, r.transport.WriteDLQPending)
	for _, l := range r.transport.Loops() {
		repeat(l.What, l.Interval, l.Once)
	}
}

// goLate starts what ends after the last task: heartbeats, outcomes, and the member of the group.
func (r *Runner) goLate(ctx context.Context, g *sync.WaitGroup) {
	g.Go(func() { r.leaseLoop(ctx) })
	g.Go(func() { r.beatLoop(ctx) })
	g.Go(func() { r.finishLoop(ctx) })
	g.Go(func() { r.relieveLoop(ctx) })
	g.Go(func() { r.effects.Loop(ctx) })
	g.Go(func() { r.memberLoop(ctx) })
}

// every calls once at the start and then in each interval, until ctx ends.
func (r *Runner) every(ctx context.Context, what string, interval time.Duration, once func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := once(ctx); err != nil && ctx.Err() == nil {
			r.health.Warn(ctx, "runner: "+what, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// owner names this call in lease_owner: "process/number".
func (r *Runner) owner() string {
	return r.cfg.Process + "/" + strconv.FormatInt(r.calls.Add(1), 10)
}

// silent reports that nothing records spans.
func (r *Runner) silent() bool {
	_, yes := r.deps.Tracer.(noop.Tracer)
	return yes
}

// handler returns who does tasks of a type; nil: nobody.
func (r *Runner) handler(typ string) Handler { return r.deps.Handlers[typ] }

// decider returns who decides on tasks of a type that ended well; nil: they succeeded.
func (r *Runner) decider(typ string) Decider {
	d, _ := r.handler(typ).(Decider)
	return d
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
		for _, h := range r.claims.All() {
			h.Cancel(local.ErrStopping)
		}
		r.drained(ctx, r.cfg.handBack())
	}
	crash.Point("worker.in_stop")
	close(r.ended)
	flush, cancel := context.WithTimeout(ctx, flushLimit)
	defer cancel()
	r.effects.Flush(flush)
}

// drained waits until nothing is held, at most limit.
func (r *Runner) drained(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return local.Until(ctx, r.claims.Empty)
}
