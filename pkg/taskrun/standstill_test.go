package taskrun

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// standstill is SIGSTOP of one process of a world: none of its calls begins or returns while it lasts, and no loop looks at
// its clock. A call that is under way may still be done by the store.
type standstill struct {
	mu   sync.Mutex
	gate chan struct{} // nil: the process runs
}

// stoppable gives processes of these names a standstill each.
func (w *world) stoppable(names ...string) {
	w.stops = map[string]*standstill{}
	for _, name := range names {
		w.stops[name] = &standstill{}
	}
}

// stop stops all of them for d.
func (w *world) stop(d time.Duration) {
	for _, s := range w.stops {
		s.mu.Lock()
		s.gate = make(chan struct{})
		s.mu.Unlock()
	}
	stillFor(d)
	for _, s := range w.stops {
		s.mu.Lock()
		close(s.gate)
		s.gate = nil
		s.mu.Unlock()
	}
}

// wait returns when the process runs.
func (s *standstill) wait() (stood bool) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return gate != nil
}

// begin is wait before a call: one that a stopped process would have begun, it begins awake, with all its time.
func (s *standstill) begin(ctx context.Context) context.Context {
	if s.wait() {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// stoppedStore is a store as a process with standstills sees it.
type stoppedStore struct {
	*memStore
	s *standstill
}

func (x stoppedStore) Apply(ctx context.Context, b taskstate.Batch) ([]taskstate.Outcome, error) {
	ctx = x.s.begin(ctx)
	defer x.s.wait()
	return x.memStore.Apply(ctx, b)
}

func (x stoppedStore) Sweep(ctx context.Context, w taskstate.Sweep) ([]taskstate.Outcome, error) {
	ctx = x.s.begin(ctx)
	defer x.s.wait()
	return x.memStore.Sweep(ctx, w)
}

func (x stoppedStore) Heartbeat(ctx context.Context, lease time.Duration, beats []taskstate.Beat) ([]string, error) {
	ctx = x.s.begin(ctx)
	defer x.s.wait()
	return x.memStore.Heartbeat(ctx, lease, beats)
}

func (x stoppedStore) Renew(ctx context.Context, process string, lease time.Duration, slots int) error {
	ctx = x.s.begin(ctx)
	defer x.s.wait()
	return x.memStore.Renew(ctx, process, lease, slots)
}

func (x stoppedStore) Held(ctx context.Context, process string, within time.Duration) ([]taskstate.HeldTask, error) {
	ctx = x.s.begin(ctx)
	defer x.s.wait()
	return x.memStore.Held(ctx, process, within)
}

func (x stoppedStore) NextWake(ctx context.Context, status taskstate.Status, limit time.Duration) (time.Duration, error) {
	ctx = x.s.begin(ctx)
	defer x.s.wait()
	return x.memStore.NextWake(ctx, status, limit)
}

// A machine sleeps for longer than the lease with both processes in the middle of their tasks: awake, each asks whether it
// still holds its own before anybody takes over anything. Nothing ran twice, and no crash is counted.
func TestAllStandStillAndNoCrashIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.stoppable("a", "b")
		w.task("x")
		w.task("y")
		release := make(chan struct{})
		kind := &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }}
		for name := range w.stops {
			w.start(name, kind, func(c *Config) { c.Concurrency = 2 })
		}
		stillFor(time.Second)
		require.Len(t, kind.ran(), 2)
		w.store.setFault(slowly("renew", 3*time.Second)) // the recovery loops are awake first
		w.stop(40 * time.Second)
		for _, id := range []string{"x", "y"} {
			require.False(t, w.store.get(id).LeaseExpiresAt().After(instant()), "the standstill was too short")
		}
		stillFor(5 * time.Second)
		for _, id := range []string{"x", "y"} {
			require.True(t, w.store.get(id).LeaseExpiresAt().After(instant()), "its holder revived the lease")
		}
		stillFor(time.Minute)
		close(release)
		stillFor(time.Second)
		require.Len(t, kind.ran(), 2)
		for _, id := range []string{"x", "y"} {
			row := w.store.get(id)
			require.Equal(t, []any{taskstate.StatusSucceeded, int64(1), 0}, []any{row.Status, row.Fence, row.CrashCount}, id)
		}
	})
}

// slowly makes calls of one sort slow.
func slowly(op string, d time.Duration) func(string) error {
	return func(called string) error {
		if called == op {
			<-time.After(d)
		}
		return nil
	}
}

// The machine sleeps while one process is about to take over what a dead one left: what else has expired meanwhile is not taken along.
func TestATakeoverUnderWayAsksAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.stoppable("a", "b")
		w.task("x")
		release := make(chan struct{})
		w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }},
			func(c *Config) { c.Recovery = false })
		b := w.start("b", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(time.Second)
		begun := false
		w.store.setFault(func(op string) error {
			switch {
			case op == "heartbeat":
				<-time.After(3 * time.Second)
			case op == "sweep RUNNING" && !begun:
				begun = true
				<-time.After(41 * time.Second)
			}
			return nil
		})
		w.expired("gone", 0)
		stillFor(900 * time.Millisecond)
		require.True(t, begun)
		w.stop(40 * time.Second)
		stillFor(5 * time.Second)
		require.Empty(t, b.kind.ran())
		stillFor(20 * time.Second)
		require.Equal(t, []string{"gone"}, b.kind.ran())
		close(release)
		stillFor(5 * time.Second)
		row := w.store.get("x")
		require.Equal(t, []any{taskstate.StatusSucceeded, int64(1), 0}, []any{row.Status, row.Fence, row.CrashCount})
	})
}

// One of two processes stands still: the other one takes its task over, which is one crash. The woken one learns that it
// lost the task, stops, and changes nothing; it works on as before.
func TestTheOneThatStoodStillStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.stoppable("a")
		w.task("x")
		ended := make(chan error, 1)
		a := w.start("a", &testHandler{run: func(ctx context.Context, j Job) Result {
			if j.Task.ID == "x" {
				<-ctx.Done()
				ended <- context.Cause(ctx)
			}
			return Result{}
		}})
		stillFor(time.Second)
		release := make(chan struct{})
		b := w.start("b", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }},
			func(c *Config) { c.MainLoop = false })
		w.stop(40 * time.Second)
		require.Equal(t, []string{"x"}, b.kind.ran())
		stillFor(2 * time.Second)
		require.ErrorIs(t, <-ended, taskstate.ErrLost)
		w.task("y")
		stillFor(time.Minute)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("y").Status, "it works on")
		close(release)
		stillFor(time.Second)
		row := w.store.get("x")
		require.Equal(t, []any{taskstate.StatusSucceeded, int64(2), 1}, []any{row.Status, row.Fence, row.CrashCount})
		require.Equal(t, []string{"x", "y"}, a.kind.ran())
	})
}

// The process stands still between the COMMIT of a claim and what follows it: its own recovery loop may be awake first.
func TestAClaimUnderWayIsNotTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		committed := false
		var woken atomic.Bool
		w.store.setFault(func(op string) error {
			if op == "apply!" && !committed {
				committed = true
				<-time.After(40 * time.Second) // the lane alone: the worst order
			}
			if op == "renew" && !woken.Load() {
				return errors.New("it stood still too")
			}
			return nil
		})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-time.After(time.Second); return Result{} }})
		stillFor(39 * time.Second)
		require.Empty(t, p.kind.ran())
		row := w.store.get("x")
		require.False(t, row.LeaseExpiresAt().After(instant()))
		require.Equal(t, int64(1), row.Fence, "nobody took it over")
		woken.Store(true)
		stillFor(5 * time.Second)
		require.Equal(t, []string{"x"}, p.kind.ran())
		row = w.store.get("x")
		require.Equal(t, []any{taskstate.StatusSucceeded, int64(1), 0}, []any{row.Status, row.Fence, row.CrashCount})
		require.Empty(t, p.asking.Owners)
	})
}

// A claim that was late asks at the next heartbeat, not a third of a lease later: its lease began with its transaction.
func TestALateClaimAsksAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		late := false
		w.store.setFault(func(op string) error {
			if op == "apply!" && !late {
				late = true
				<-time.After(20 * time.Second)
			}
			return nil
		})
		release := make(chan struct{})
		w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }})
		stillFor(22 * time.Second)
		require.True(t, w.store.get("x").LeaseExpiresAt().After(instant().Add(25*time.Second)))
		close(release)
	})
}

// What a standstill of the whole process takes is no silence of a run: no attempt is counted, and no slot is written off.
func TestAStandstillIsNoStall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.stoppable("a")
		w.task("x")
		release := make(chan struct{})
		p := w.start("a", &testHandler{run: func(ctx context.Context, _ Job) Result {
			select {
			case <-ctx.Done():
			case <-release:
			}
			return Result{Err: ctx.Err()}
		}}, func(c *Config) { c.StallLimit = map[taskstate.Stage]time.Duration{taskstate.StageNone: time.Minute} })
		stillFor(time.Second)
		w.stop(10 * time.Minute)
		stillFor(5 * time.Second)
		require.Equal(t, taskstate.StatusRunning, w.store.get("x").Status)
		close(release)
		stillFor(time.Second)
		row := w.store.get("x")
		require.Equal(t, []any{taskstate.StatusSucceeded, 0, 0}, []any{row.Status, row.AttemptCount, row.CrashCount})
		require.Equal(t, 4, p.slots.Idle())
	})
}

// While a machine sleeps the monotonic clock stands still; the wall's goes on. Either of them tells.
func TestElapsedByEitherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		now  time.Time
		want time.Duration
	}{
		"both":                     {now.Add(time.Minute), time.Minute},
		"only the wall's went on":  {now.Round(0).Add(time.Hour), time.Hour},
		"the wall alone went back": {now.Round(0).Add(-time.Hour), -time.Hour},
	} {
		require.Equal(t, c.want, local.Elapsed(c.now, now), name)
	}
}

// The COMMIT of a claim has no answer, and meanwhile the process reserves an isolated run: the claim that it does not know of
// yet is asked for, runs to its end, and the isolated run comes after it, alone.
func TestAnUnheardClaimRunsBeforeTheIsolatedRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		unheard := false
		w.store.setFault(func(op string) error {
			if op == "apply!" && !unheard {
				unheard = true
				at := instant()
				w.store.put(taskstate.Task{
					ID: "poison", Status: taskstate.StatusRunning, Fence: 5, CrashCount: 1, LeaseOwner: "crashed/1",
					WakeAt: at,
				})
				return taskstate.ErrOutcomeUnknown
			}
			if op == "apply" && unheard && w.store.called("apply") < 4 {
				return taskstate.ErrUnavailable // the reservation is made first
			}
			return nil
		})
		g := newGated("x", "poison")
		p := w.start("a", g.handler())
		stillFor(5 * time.Second)
		require.Equal(t, []string{"x"}, p.kind.ran())
		close(g.release["x"])
		stillFor(5 * time.Second)
		require.Equal(t, []string{"x", "poison"}, p.kind.ran())
		close(g.release["poison"])
		stillFor(5 * time.Second)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2}, w.store.statuses())
		require.Zero(t, g.together)
		require.Zero(t, w.store.get("x").CrashCount)
	})
}
