package taskrun

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The most deliveries of one read, and slots for two lanes of a backlog.
const (
	fullRead  = 500
	wideSlots = 2 * fullRead
)

// gateway lets transactions of one sort wait; what waits goes on one by one, in the order of its coming, or all at once.
type gateway struct {
	meter // of those that are under way

	mu   sync.Mutex
	open bool
	wait []chan error
}

// pass waits for its turn; what it returns is what the transaction says after its commit.
func (g *gateway) pass() error {
	g.mu.Lock()
	if g.open {
		g.mu.Unlock()
		return nil
	}
	turn := make(chan error)
	g.wait = append(g.wait, turn)
	g.mu.Unlock()
	g.add(1)
	defer g.add(-1)
	return <-turn
}

// next lets the one go on that has waited longest.
func (g *gateway) next(answer error) {
	g.mu.Lock()
	turn := g.wait[0]
	g.wait = g.wait[1:]
	g.mu.Unlock()
	turn <- answer
}

// free lets all go on.
func (g *gateway) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	for _, turn := range g.wait {
		turn <- nil
	}
	g.wait = nil
}

// isClaim tells a runner's claim from its finish, as long as no answer to that was lost.
func isClaim(b taskstate.Batch) bool { return b.Held == nil && b.OnTransition != nil }

// backlog puts n tasks into the queue; the tasks of some places are on their last run.
func (w *world) backlog(n int, poisoned ...int) {
	last := map[int]bool{}
	for _, i := range poisoned {
		last[i] = true
	}
	for i := range n {
		w.task(fmt.Sprintf("t%04d", i), func(t *taskstate.Task) {
			if last[i] {
				poison(t)
			}
		})
	}
}

// inTwoLanes starts a runner over a backlog of n tasks and lets it come to where both lanes claim: each has read as much as
// it may, and waits at the gate.
func (w *world) inTwoLanes(n int, kind *testHandler, poisoned ...int) (*process, *gateway) {
	w.t.Helper()
	w.backlog(n, poisoned...)
	claims := &gateway{}
	w.store.applying = func(b taskstate.Batch) error {
		if isClaim(b) {
			return claims.pass()
		}
		return nil
	}
	p := w.start("a", kind, func(c *Config) { c.Concurrency, c.Recovery = wideSlots, false })
	stillFor(time.Second)
	now, _ := claims.read()
	require.Equal(w.t, 2, now)
	require.Zero(w.t, p.slots.Idle())
	return p, claims
}

// allOnce requires that all of n tasks succeeded by their first claim and that nothing is left.
func (w *world) allOnce(n int, p *process) {
	w.t.Helper()
	require.Equal(w.t, map[taskstate.Status]int{taskstate.StatusSucceeded: n}, w.store.statuses())
	require.Len(w.t, p.kind.ran(), n)
	for i := range n {
		require.Equal(w.t, int64(1), w.store.get(fmt.Sprintf("t%04d", i)).Fence)
	}
	waiting, pending, _, _ := w.stream.counts()
	require.Zero(w.t, pending)
	require.Zero(w.t, waiting)
	require.Equal(w.t, wideSlots, p.slots.Idle())
	require.Empty(w.t, p.claims.All())
}

// Two claims of a backlog are under way at the same time, never a third, and no more runs at once than there are slots.
func TestTwoClaimsOfABacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var running meter
		kind := &testHandler{run: func(context.Context, Job) Result {
			running.add(1)
			defer running.add(-1)
			<-time.After(time.Millisecond)
			return Result{}
		}}
		p, claims := w.inTwoLanes(5_000, kind)
		for range 4 { // the second ends before the first, and so on
			claims.next(nil)
			stillFor(time.Second)
			now, _ := claims.read()
			require.Equal(t, 2, now)
		}
		claims.free()
		stillFor(time.Second)
		_, most := claims.read()
		require.Equal(t, 2, most)
		_, most = running.read()
		require.LessOrEqual(t, most, wideSlots)
		w.allOnce(5_000, p)
	})
}

// With few slots two lanes would only halve the claims.
func TestOneClaimOfABacklogWithFewSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.backlog(5_000)
		claims := &gateway{}
		w.store.applying = func(b taskstate.Batch) error {
			if isClaim(b) {
				return claims.pass()
			}
			return nil
		}
		w.start("a", &testHandler{}, func(c *Config) { c.Concurrency, c.Recovery = fullRead, false })
		for range 4 {
			stillFor(time.Second)
			now, _ := claims.read()
			require.Equal(t, 1, now)
			claims.next(nil)
		}
		claims.free()
		stillFor(time.Second)
		_, most := claims.read()
		require.Equal(t, 1, most)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 5_000}, w.store.statuses())
	})
}

// Without a backlog one claim does not wait for another: a single delivery that comes while the first is claimed.
func TestASingleDeliveryIsClaimedBesideAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		claims := &gateway{}
		w.store.applying = func(b taskstate.Batch) error {
			if isClaim(b) {
				return claims.pass()
			}
			return nil
		}
		w.start("a", &testHandler{}, func(c *Config) { c.Concurrency = wideSlots })
		stillFor(time.Second)
		w.task("one")
		stillFor(0)
		w.task("two")
		stillFor(0)
		now, _ := claims.read()
		require.Equal(t, 2, now)
		claims.free()
		stillFor(0)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2}, w.store.statuses())
	})
}

// Each of two claims that are under way meets a task on its last run: one is reserved, the other goes back, and each runs alone.
func TestTwoClaimsMeetLastRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var all, alone meter
		var together atomic.Int64
		kind := &testHandler{run: func(_ context.Context, j Job) Result {
			all.add(1)
			defer all.add(-1)
			if j.Task.CrashCount > 0 {
				alone.add(1)
				defer alone.add(-1)
			}
			<-time.After(time.Millisecond)
			if now, _ := alone.read(); now > 0 {
				if n, _ := all.read(); n > 1 {
					together.Add(1)
				}
			}
			return Result{}
		}}
		_, claims := w.inTwoLanes(2_000, kind, 5, fullRead+5)
		claims.free()
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2_000}, w.store.statuses())
		require.Len(t, kind.ran(), 2_000)
		require.Zero(t, together.Load())
		_, most := alone.read()
		require.Equal(t, 1, most)
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending)
	})
}

// One lane reserves while the other's claim is under way: what that wins runs first, and the reserved task after it, alone.
func TestTheOtherLanesClaimRunsBeforeTheReservedTask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		const n, last = 2_000, 5
		w.backlog(n, last)
		poisoned := fmt.Sprintf("t%04d", last)
		kind := &testHandler{}
		p := w.make("a", kind, func(c *Config) { c.Concurrency, c.Recovery = wideSlots, false })
		spun := false
		first, both := make(chan struct{}), make(chan struct{})
		var reads atomic.Int64
		w.stream.setFault(func(op string) error {
			if op == "read" && reads.Add(1) == 2 {
				<-first // the first claim has the right to reserve
			}
			return nil
		})
		w.store.applying = func(b taskstate.Batch) error {
			switch {
			case !isClaim(b) || len(b.IDs) == 1:
			case slices.Contains(b.IDs, poisoned):
				close(first)
				<-both
			case !spun: // until the reserver, who holds nothing any more, asks to claim alone
				spun = true
				close(both)
				for len(kind.ran()) < fullRead-1 || len(p.claims.All()) > 0 { // it asks early, too, while the first claim's tasks start
					runtime.Gosched()
				}
				for p.isolated.Gate.TryRLock() {
					p.isolated.Gate.RUnlock()
					runtime.Gosched()
				}
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		p.stop = cancel
		go func() { p.done <- p.Run(ctx) }()
		stillFor(time.Minute)
		p.end(t)
		ran := kind.ran()
		require.Len(t, ran, n)
		require.Equal(t, poisoned, ran[wideSlots-1], "after all that was claimed before it")
		w.allOnce(n, p)
	})
}

// One lane reserves while the other reads: what that brings is handed back, not claimed.
func TestTheOtherLanesReadIsHandedBackInAReservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		const n, last = 2_000, 5
		w.backlog(n, last)
		poisoned := fmt.Sprintf("t%04d", last)
		release, reading := make(chan struct{}), make(chan struct{})
		var reads atomic.Int64
		w.stream.setFault(func(op string) error {
			if op == "read" && reads.Add(1) == 2 { // the first has the task on its last run
				<-reading
			}
			return nil
		})
		kind := &testHandler{run: func(_ context.Context, j Job) Result {
			if j.Task.ID == poisoned {
				<-release
			}
			return Result{}
		}}
		p := w.start("a", kind, func(c *Config) { c.Concurrency, c.Recovery = wideSlots, false })
		stillFor(time.Second)
		require.Equal(t, poisoned, kind.ran()[len(kind.ran())-1], "it runs while the other lane reads")
		before := len(kind.ran())
		close(reading)
		stillFor(time.Second)
		require.Len(t, kind.ran(), before)
		require.Equal(t, n-before, w.store.statuses()[taskstate.StatusQueued])
		waiting, pending, _, _ := w.stream.counts()
		require.Equal(t, []int{n - before, 1}, []int{waiting, pending}, "copies for others; only the entry of what runs is held")
		close(release)
		stillFor(time.Second)
		w.allOnce(n, p)
	})
}

// The answer to one of two claims is lost: it is read back, while the other goes on; nothing runs twice, no crash is counted.
func TestUnknownClaimBesideAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		p, claims := w.inTwoLanes(2_000, &testHandler{})
		claims.next(taskstate.ErrOutcomeUnknown)
		claims.free()
		stillFor(time.Minute)
		w.allOnce(2_000, p)
	})
}

// A stop while two claims are under way: what they win still runs, and nothing stays pending.
func TestStopWhileTwoClaimsAreUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		p, claims := w.inTwoLanes(2_000, &testHandler{})
		p.stop()
		stillFor(time.Second)
		claims.free()
		p.end(t)
		stillFor(0) // until the last worker has given its slot
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: wideSlots, taskstate.StatusQueued: 2_000 - wideSlots}, w.store.statuses())
		waiting, pending, _, _ := w.stream.counts()
		require.Equal(t, []int{2_000 - wideSlots, 0}, []int{waiting, pending})
		require.Equal(t, wideSlots, p.slots.Idle())
	})
}

// The database goes away while two claims are under way, and the process stops: both hand back what they read.
func TestStopReturnsTheDeliveriesOfBothLanes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		p, claims := w.inTwoLanes(2_000, &testHandler{})
		w.store.setFault(func(string) error { return taskstate.ErrUnavailable })
		claims.next(taskstate.ErrUnavailable)
		claims.next(taskstate.ErrUnavailable)
		stillFor(5 * time.Second)
		_, pending, _, _ := w.stream.counts()
		require.Equal(t, wideSlots, pending, "kept while the database is away")
		p.end(t)
		waiting, pending, _, _ := w.stream.counts()
		require.Equal(t, []int{2_000, 0}, []int{waiting, pending})
		require.Equal(t, wideSlots, p.slots.Idle())
	})
}

// Two reads are under way: recovery gets none of their slots, and its half as soon as one falls free.
func TestShareOfRecoveryBesideTwoReads(t *testing.T) {
	t.Parallel()
	s := local.NewSlots(wideSlots, wideSlots, nil)
	n, _, _ := s.BeginRead()
	s.EndLane(s.EndRead(n, n), 0) // a full read: more wait
	for range 2 {
		n, more, _ := s.BeginRead()
		require.True(t, more)
		require.Equal(t, fullRead, n)
	}
	s.SetRecoveryWaiting(true)
	require.Zero(t, s.TakeRecovery(1_000))
	require.Equal(t, fullRead, s.EndRead(fullRead, fullRead))
	s.EndLane(fullRead, fullRead-100) // of the others somebody else was faster
	require.Equal(t, 100, s.TakeRecovery(1_000))
	require.Equal(t, fullRead, s.EndRead(fullRead, fullRead))
	s.EndLane(fullRead, fullRead)
	s.Give(false, fullRead)
	n, _, _ = s.BeginRead()
	require.Equal(t, 100, n, "the other 400 are recovery's")
}

// A fault halves the slots while two reads are under way: what comes beyond that is not granted.
func TestSlotsShrinkBesideTwoReads(t *testing.T) {
	t.Parallel()
	s := local.NewSlots(wideSlots, wideSlots, nil)
	for range 2 {
		n, _, _ := s.BeginRead()
		require.Equal(t, fullRead, n)
	}
	require.Equal(t, fullRead, s.EndRead(fullRead, fullRead))
	s.Shrink()
	require.Zero(t, s.EndRead(fullRead, fullRead), "250 may run at once, and twice as many do")
	s.EndLane(fullRead, fullRead)
	s.EndLane(0, 0)
	n, _, _ := s.BeginRead()
	require.Zero(t, n)
	s.Give(false, 400)
	n, _, _ = s.BeginRead()
	require.Equal(t, 150, n)
}

// claimSizes notes how large the claims are.
func (w *world) claimSizes() (most func() int) {
	var mu sync.Mutex
	var n int
	w.store.applying = func(b taskstate.Batch) error {
		if isClaim(b) {
			mu.Lock()
			n = max(n, len(b.IDs))
			mu.Unlock()
		}
		return nil
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// follows lets the slots of a runner follow the backlog.
func follows(c *Config) { c.Concurrency, c.Recovery = 0, false }

// A backlog of short tasks gets more slots, and after it there are as many as usual.
func TestSlotsFollowABacklogOfShortTasks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		const n = 6_000
		w.backlog(n)
		most := w.claimSizes()
		p := w.start("a", &testHandler{}, follows)
		stillFor(time.Second)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: n}, w.store.statuses())
		require.Equal(t, 500, most())
		require.Equal(t, usualSlots, p.slots.UsableNow())
		require.Equal(t, usualSlots, p.slots.Idle())
		require.Len(t, p.kind.ran(), n)
		_, pending, added, _ := w.stream.counts()
		require.Equal(t, []int{0, n}, []int{pending, added}, "nothing was read for which there was no slot")
	})
}

// Slots that an operator has set stay, and so do those of tasks that take their time.
func TestSlotsThatDoNotFollow(t *testing.T) {
	for name, c := range map[string]struct {
		slots int
		run   time.Duration
	}{"set": {64, 0}, "longer tasks": {0, 50 * time.Millisecond}, "set, short tasks": {64, time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.backlog(2_000)
				most := w.claimSizes()
				var running meter
				w.start("a", &testHandler{run: func(context.Context, Job) Result {
					running.add(1)
					defer running.add(-1)
					<-time.After(c.run)
					return Result{}
				}}, follows, func(cfg *Config) { cfg.Concurrency = c.slots })
				stillFor(time.Minute)
				require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2_000}, w.store.statuses())
				require.Equal(t, usualSlots, most())
				_, at := running.read()
				require.LessOrEqual(t, at, usualSlots)
			})
		})
	}
}

// Long tasks come behind a backlog of short ones: after those that were claimed with them no more run than usual.
func TestLongTasksBehindShortOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		const short, n = 6_000, 12_000
		w.backlog(n)
		var running meter
		w.start("a", &testHandler{run: func(_ context.Context, j Job) Result {
			if j.Task.ID >= fmt.Sprintf("t%04d", short) {
				running.add(1)
				defer running.add(-1)
				<-time.After(time.Duration(1+len(j.Task.ID)%3) * time.Second)
			}
			return Result{}
		}}, follows, func(c *Config) { c.StopGrace, c.HandBack = 0, time.Hour })
		stillFor(100 * time.Millisecond)
		_, most := running.read()
		require.Greater(t, most, usualSlots)
		require.LessOrEqual(t, most, mostSlots)
		stillFor(10 * time.Second)
		running.reset()
		stillFor(10 * time.Second)
		_, most = running.read()
		require.LessOrEqual(t, most, usualSlots)
	})
}

// Outcomes beyond one for each slot keep theirs until they are committed, and while there are such no slots are added.
func TestOutcomesKeepTheirSlots(t *testing.T) {
	t.Parallel()
	var outcomes int
	s := local.NewSlots(usualSlots, mostSlots, func() int { return outcomes })
	n, _, _ := s.BeginRead()
	s.EndLane(s.EndRead(n, n), n)
	ended(s, n)
	outcomes = usualSlots + 10
	n, _, _ = s.BeginRead()
	require.Equal(t, usualSlots-10, n)
	s.EndLane(s.EndRead(n, n), n)
	ended(s, n)
	outcomes = 2 * usualSlots
	n, _, changed := s.BeginRead()
	require.Zero(t, n)
	outcomes = 0
	s.Finishing()
	<-changed
	n, _, _ = s.BeginRead()
	require.Equal(t, 2*usualSlots, n)
}

// A backlog of short tasks goes on when their outcomes are committed, which could not be for a while.
func TestABacklogWaitsForItsOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.backlog(6_000)
		finishes := &gateway{}
		w.store.applying = func(b taskstate.Batch) error {
			if isFinish(b) {
				return finishes.pass()
			}
			return nil
		}
		p := w.start("a", &testHandler{}, follows)
		stillFor(time.Minute)
		under := 2 * p.cfg.FinishBatch
		require.LessOrEqual(t, len(p.claims.All()), 2*mostSlots+under)
		require.LessOrEqual(t, p.slots.Idle(), 0)
		finishes.free()
		stillFor(time.Second)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 6_000}, w.store.statuses())
	})
}

// grown are slots that have followed a backlog to their most.
func grown(t *testing.T) *local.Slots {
	s := local.NewSlots(usualSlots, mostSlots, func() int { return 0 })
	for range 12 {
		n, _, _ := s.BeginRead()
		s.EndLane(s.EndRead(n, n), n)
		ended(s, n)
	}
	require.Equal(t, mostSlots, s.UsableNow())
	return s
}

// ended ends n short tasks.
func ended(s *local.Slots, n int) {
	for range n {
		s.Ended(false, 0)
	}
}

// What a read under way was promised is granted, whatever another read says of the backlog, or the last claim of its tasks.
func TestAReadKeepsItsExtraSlots(t *testing.T) {
	t.Parallel()
	for name, got := range map[string]int{"the backlog ends": 3, "it goes on": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := grown(t)
			a, _, _ := s.BeginRead()
			b, _, _ := s.BeginRead()
			require.Equal(t, []int{500, 500}, []int{a, b})
			require.Equal(t, got, s.EndRead(a, got))
			s.EndLane(got, got)
			s.BeginRead()
			require.Equal(t, 500, s.EndRead(b, 500))
		})
	}
}

// Reads of both lanes overlap all the time after a backlog: the extra slots go all the same.
func TestOverlappingReadsGiveUpExtraSlots(t *testing.T) {
	t.Parallel()
	s := grown(t)
	a, _, _ := s.BeginRead()
	b, _, _ := s.BeginRead()
	s.EndLane(s.EndRead(a, 3), 3)
	s.Give(false, 3)
	n, _, _ := s.BeginRead()
	require.Zero(t, n, "what is left of them is for the other read")
	require.Equal(t, b, s.UsableNow())
	s.EndLane(s.EndRead(b, 0), 0)
	n, _, _ = s.BeginRead()
	require.Equal(t, usualSlots, n)
}

// A fault of the process takes the extra slots, and none come back before it has as many as usual.
func TestAFaultTakesTheExtraSlots(t *testing.T) {
	t.Parallel()
	s := grown(t)
	n, _, _ := s.BeginRead()
	s.EndLane(s.EndRead(n, n), n)
	s.Shrink()
	require.Equal(t, usualSlots/2, s.UsableNow())
	ended(s, n)
	for range 6 {
		n, _, _ := s.BeginRead()
		require.LessOrEqual(t, n, usualSlots/2)
		s.EndLane(s.EndRead(n, n), n)
		ended(s, n)
	}
	require.Equal(t, usualSlots/2, s.UsableNow())
}

// Recovery's share is that of the usual slots: what it finds is not what the backlog was judged by.
func TestRecoveryGetsNoExtraSlots(t *testing.T) {
	t.Parallel()
	s := grown(t)
	require.Equal(t, usualSlots/2, s.TakeRecovery(500))
	s.Give(true, usualSlots/2)
	n, _, _ := s.BeginRead()
	s.EndLane(s.EndRead(n, 0), 0)
	require.Equal(t, usualSlots, s.TakeRecovery(500), "no delivery waits: all of the usual ones")
}
