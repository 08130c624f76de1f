package taskrun

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// While deliveries wait, waiting recovery is kept the half of the slots, rounded up, that it does not have yet;
// a read never asks for them. Without hunger nothing is kept; with no delivery waiting recovery may have all.
func TestShareOfRecovery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total, recovery int
		recoveryWaiting bool
		reads           int
	}{
		{5, 0, true, 2}, {5, 1, true, 2}, {5, 3, true, 2}, {5, 0, false, 5}, {4, 0, true, 2}, {2, 0, true, 1}, {1, 0, true, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			s := local.NewSlots(c.total, c.total, nil)
			s.Recovery = c.recovery
			s.SetRecoveryWaiting(c.recoveryWaiting)
			n, _, _ := s.BeginRead()
			require.Equal(t, c.reads, n)
		})
	}
	s := local.NewSlots(5, 5, nil)
	require.Equal(t, 5, s.TakeRecovery(100), "nobody waits: all")
	s.Give(true, 5)
	n, _, _ := s.BeginRead()
	s.EndLane(s.EndRead(n, n), 0) // a full read: more wait
	require.Equal(t, 3, s.TakeRecovery(100), "half, rounded up")
	more, _ := s.Recoverable()
	require.False(t, more)
}

// backlogOf has four slots run the first of 100 deliveries; each run, of a delivery or of recovery, waits for a release.
func backlogOf(w *world, release <-chan struct{}, mains, recs *meter) {
	kind := &testHandler{run: func(_ context.Context, j Job) Result {
		m := mains
		if j.Task.AttemptCount > 0 {
			m = recs
		}
		m.add(1)
		defer m.add(-1)
		<-release
		return Result{}
	}}
	for i := range 100 {
		w.task(fmt.Sprint("m", i))
	}
	w.start("a", kind, func(c *Config) { c.Concurrency = 4 })
	stillFor(time.Second)
}

// All slots run deliveries when retries come due: each that falls free is recovery's until it has its half.
func TestFreedSlotsGoToRecoveryFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		var mains, recs meter
		backlogOf(w, release, &mains, &recs)
		for i := range 10 {
			w.retrying(fmt.Sprint("r", i), 0)
		}
		stillFor(2 * time.Second)
		for i := range 2 {
			release <- struct{}{} // the runs wait in turn: a delivery's ends
			stillFor(time.Second)
			now, _ := mains.read()
			require.Equal(t, 4-(i+1), now, "a freed slot is recovery's, not the next delivery's")
		}
		now, _ := recs.read()
		require.Equal(t, 2, now)
		close(release)
	})
}

// Recovery that has won what it had slots for knows of more until it has looked: a slot that falls free before that look is its own too.
func TestASlotFreedBetweenTwoLooksIsRecoverys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		release, look := make(chan struct{}), make(chan struct{})
		var mains, recs meter
		backlogOf(w, release, &mains, &recs)
		var won atomic.Bool
		w.store.setFault(func(op string) error {
			switch {
			case op == "sweep RETRYING!":
				won.Store(true)
			case op == "nextwake" && won.Load():
				<-look
			}
			return nil
		})
		for i := range 10 {
			w.retrying(fmt.Sprint("r", i), 0)
		}
		stillFor(2 * time.Second)
		release <- struct{}{} // a delivery's run ends
		stillFor(100 * time.Millisecond)
		looked := won.Load()
		release <- struct{}{}
		stillFor(100 * time.Millisecond)
		delivered, _ := mains.read()
		close(look)
		stillFor(time.Second)
		recovered, _ := recs.read()
		close(release)
		require.True(t, looked, "recovery has won a task, and has not looked again")
		require.Equal(t, 2, delivered, "the next delivery does not get the slot")
		require.Equal(t, 2, recovered)
	})
}

// A read is in flight when recovery makes the reservation: what it brings is handed back, not claimed (design D6).
func TestReadInFlightIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("long")
		g := newGated("long", "poison", "late")
		p := w.start("a", g.handler(), func(c *Config) { c.Block, c.StallLimit = time.Hour, nil })
		stillFor(time.Second) // it reads again, for an hour
		at := instant()
		w.store.put(taskstate.Task{
			ID: "poison", Status: taskstate.StatusRunning, Fence: 5, CrashCount: 1, LeaseOwner: "crashed/1", WakeAt: at,
		})
		stillFor(time.Second)
		require.True(t, p.isolated.Active())
		id := w.task("late")
		stillFor(time.Second)
		require.Equal(t, []string{"long"}, p.kind.ran())
		require.Equal(t, taskstate.StatusQueued, w.store.get("late").Status)
		require.False(t, w.stream.claims(id))
		waiting, _, _, _ := w.stream.counts()
		require.Equal(t, 1, waiting, "a copy for others")
		for _, gate := range g.release {
			close(gate)
		}
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 3}, w.store.statuses())
		require.Zero(t, g.together)
	})
}

// A claim is being committed when recovery reserves an isolated run: what it wins runs first, and the isolated run after it, alone.
func TestClaimInFlightRunsBeforeTheIsolatedRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGated("other", "poison")
		p := w.make("a", g.handler(), func(c *Config) { c.StallLimit = nil })
		ctx, cancel := context.WithCancel(t.Context())
		go p.isolatedLoop(ctx)
		go p.finishLoop(ctx)
		id := w.task("other")
		at := instant()
		w.store.put(taskstate.Task{
			ID: "poison", Status: taskstate.StatusRunning, Fence: 5, CrashCount: 1, LeaseOwner: "crashed/1", WakeAt: at,
		})
		n, _, _ := p.slots.BeginRead()
		require.Positive(t, n)
		require.Equal(t, 1, p.slots.EndRead(n, 1))
		claiming, took := make(chan struct{}), make(chan int, 1)
		w.store.setFault(func(op string) error {
			switch op {
			case "sweep RUNNING!": // the reservation is committed, and not noted yet
				go func() {
					took <- p.take(ctx, []ingestq.Delivery{ingestq.Decoded(id, ingestq.EnvelopeOf(w.store.get("other")))})
				}()
				<-claiming
			case "apply":
				w.store.setFault(nil)
				close(claiming)
				for p.isolated.Gate.TryRLock() { // until the reserver, holding nothing, asks to claim alone
					p.isolated.Gate.RUnlock()
					runtime.Gosched()
				}
			}
			return nil
		})
		_, _, err := p.recoverStatus(ctx, taskstate.StatusRunning)
		require.NoError(t, err)
		require.True(t, p.isolated.Active())
		require.Equal(t, 1, <-took)
		stillFor(time.Second)
		require.Equal(t, []string{"other"}, p.kind.ran())
		close(g.release["other"])
		stillFor(time.Second)
		require.Equal(t, []string{"other", "poison"}, p.kind.ran())
		close(g.release["poison"])
		stillFor(time.Second)
		require.Zero(t, g.together)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2}, w.store.statuses())
		cancel()
	})
}

// Leases of the process's own claims expire while heartbeats fail: it takes none of them over,
// and they do not stand in front of what others left.
func TestOwnExpiredClaimsAreLeftAlone(t *testing.T) {
	for _, own := range []int{4, maxExclude + 100} {
		t.Run(fmt.Sprint(own), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				release := make(chan struct{})
				for i := range own {
					w.task(fmt.Sprintf("own%03d", i))
				}
				p := w.start("a", &testHandler{run: func(_ context.Context, j Job) Result {
					if j.Task.ID != "other" {
						<-release
					}
					return Result{}
				}}, func(c *Config) { c.Concurrency, c.SweepBatch, c.StallLimit = own+1, 500, nil })
				stillFor(time.Second)
				w.store.setFault(func(op string) error {
					if op == "heartbeat" || op == "renew" {
						return taskstate.ErrUnavailable
					}
					return nil
				})
				stillFor(40 * time.Second)
				require.True(t, w.store.get("own000").LeaseExpiresAt().Before(instant()))
				if own < maxExclude {
					w.expired("other", 0)
					stillFor(time.Second)
					require.Equal(t, taskstate.StatusSucceeded, w.store.get("other").Status)
				}
				for i := range own {
					require.Equal(t, int64(1), w.store.get(fmt.Sprintf("own%03d", i)).Fence)
				}
				w.store.setFault(nil)
				close(release)
				stillFor(time.Minute)
				require.Zero(t, w.store.get("own000").CrashCount)
				require.Empty(t, p.claims.All())
			})
		})
	}
}

// The answer to a sweep's COMMIT is lost and the database stays away for a while: still no crash is counted.
func TestUnknownTakeoverBeforeAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.retrying("x", 0)
		var away atomic.Bool
		w.store.setFault(func(op string) error {
			switch {
			case away.Load():
				return taskstate.ErrUnavailable
			case op == "sweep RETRYING!":
				away.Store(true)
				return taskstate.ErrOutcomeUnknown
			}
			return nil
		})
		p := w.start("a", &testHandler{})
		stillFor(10 * time.Second)
		require.True(t, away.Load())
		w.store.setFault(nil)
		stillFor(6 * time.Second) // less than the rest of the lease
		require.Equal(t, []string{"x"}, p.kind.ran())
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		require.Zero(t, w.store.get("x").CrashCount)
	})
}

// A row that is overdue and that somebody else has locked makes no retry late.
func TestAnOverdueRowMakesNoRetryLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.put(taskstate.Task{
			ID: "stuck", Status: taskstate.StatusRunning, Fence: 1, LeaseOwner: "o/1",
			WakeAt: instant(),
		})
		w.store.locked = "stuck"
		due := instant().Add(10*time.Second + 400*time.Millisecond)
		w.retrying("x", due.Sub(instant()))
		var at time.Time
		w.start("a", &testHandler{run: func(context.Context, Job) Result { at = instant(); return Result{} }})
		stillFor(12 * time.Second)
		require.WithinDuration(t, due, at, 10*time.Millisecond)
	})
}

// The same process claims a task again: the older claim is lost at once, and what its run brings is not even tried.
func TestNewClaimLosesTheOlderHold(t *testing.T) {
	t.Parallel()
	old := &local.Claim{Task: taskstate.Task{ID: "x"}, Token: taskstate.Token{Fence: 1}, Base: t.Context()}
	hs := local.NewClaims()
	hs.Add(old)
	require.False(t, old.IsLost())
	hs.Add(&local.Claim{Task: taskstate.Task{ID: "other"}, Token: taskstate.Token{Fence: 2}})
	require.False(t, old.IsLost())
	hs.Add(&local.Claim{Task: taskstate.Task{ID: "x"}, Token: taskstate.Token{Fence: 2}})
	require.True(t, old.IsLost())
	require.ErrorIs(t, context.Cause(old.Ctx()), taskstate.ErrLost)
	_, due := old.Beat(time.Now().Add(time.Hour), time.Second)
	require.False(t, due, "a lost claim is not renewed")
}

// What comes while one lane claims is the other's, but of a backlog one lane takes all there are slots for.
func TestLanesTakeTurnsAtABacklog(t *testing.T) {
	t.Parallel()
	s := local.NewSlots(8, 8, nil)
	n, _, _ := s.BeginRead()
	require.Equal(t, 8, n)
	require.Equal(t, 1, s.EndRead(8, 1))
	n, _, _ = s.BeginRead()
	require.Equal(t, 7, n, "the first lane claims, the second reads")
	require.Equal(t, 7, s.EndRead(7, 7))
	s.EndLane(7, 5)
	n, more, changed := s.BeginRead()
	require.Zero(t, n, "more wait, and the first lane is not done")
	require.True(t, more)
	s.EndLane(1, 1)
	<-changed
	n, _, _ = s.BeginRead()
	require.Equal(t, 2, n)
}
