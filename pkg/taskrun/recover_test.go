package taskrun

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// expired puts a RUNNING task whose process is gone.
func (w *world) expired(id string, lease time.Duration) {
	at := instant().Add(lease)
	w.store.put(taskstate.Task{
		ID: id, Status: taskstate.StatusRunning, Fence: 1, LeaseOwner: "gone/1", WakeAt: at,
		Delivery: w.stream.give(id, "gone"),
	})
}

// retrying puts a RETRYING task that is due in d.
func (w *world) retrying(id string, d time.Duration) {
	at := instant().Add(d)
	w.store.put(taskstate.Task{
		ID: id, Status: taskstate.StatusRetrying, Fence: 1, AttemptCount: 1, NextRetryAt: at, WakeAt: at,
		Delivery: w.stream.give(id, "gone"),
	})
}

// A thousand retries due at once start within 250 ms, each on its own entry.
func TestManyRetriesDueAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 1000 {
			w.retrying(fmt.Sprintf("t%04d", i), 700*time.Millisecond)
		}
		w.store.setFault(func(op string) error {
			if op == "apply" || op == "sweep RETRYING" {
				<-time.After(5 * time.Millisecond) // a commit takes time
			}
			return nil
		})
		p := w.start("a", &testHandler{}, func(c *Config) { c.Concurrency = 64 })
		due := time.Now().Add(700 * time.Millisecond)
		stillFor(690 * time.Millisecond)
		require.Empty(t, p.kind.ran(), "none before its time")
		stillFor(time.Until(due) + 250*time.Millisecond)
		require.Len(t, p.kind.ran(), 1000)
		stillFor(time.Second)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 1000}, w.store.statuses())
		_, pending, added, _ := w.stream.counts()
		require.Equal(t, []int{0, 1000}, []int{pending, added})
	})
}

// While new deliveries wait, recovery has half of the slots, no more and no less; otherwise all.
func TestRecoveryHasItsShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var mains, recs meter
		kind := &testHandler{run: func(_ context.Context, j Job) Result {
			n := &mains
			if j.Task.AttemptCount > 0 {
				n = &recs
			}
			n.add(1)
			<-time.After(100 * time.Millisecond)
			n.add(-1)
			return Result{}
		}}
		for i := range 400 {
			w.task(fmt.Sprint("m", i))
		}
		w.start("a", kind, func(c *Config) { c.Concurrency = 5 })
		stillFor(time.Second)
		now, _ := mains.read()
		require.Equal(t, 5, now)
		for i := range 200 {
			w.retrying(fmt.Sprint("r", i), 0)
		}
		stillFor(2 * time.Second)
		mains.since()
		recs.since()
		stillFor(2 * time.Second) // 20 times five runs; at one moment a slot may be between two of them
		_, most := recs.read()
		require.Equal(t, 3, most)
		require.InDelta(t, 60, recs.since(), 6)
		require.InDelta(t, 40, mains.since(), 6)

		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 600}, w.store.statuses())
		recs.reset()
		for i := range 10 {
			w.retrying(fmt.Sprint("s", i), 0)
		}
		stillFor(time.Second)
		_, most = recs.read()
		require.Equal(t, 5, most)
	})
}

// With one slot, new deliveries and recovery take turns: neither starves.
func TestOneSlotIsShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var mains, recs meter
		kind := &testHandler{run: func(_ context.Context, j Job) Result {
			if j.Task.AttemptCount > 0 {
				recs.add(1)
			} else {
				mains.add(1)
			}
			<-time.After(100 * time.Millisecond)
			return Result{}
		}}
		for i := range 400 {
			w.task(fmt.Sprint("m", i))
			w.retrying(fmt.Sprint("r", i), 0)
		}
		w.start("a", kind, func(c *Config) { c.Concurrency = 1 })
		stillFor(10 * time.Second)
		require.InDelta(t, recs.most, mains.most, 15)
		require.Greater(t, recs.most+mains.most, 85, "the slot is hardly ever idle")
	})
}

// A reclaimer takes no deliveries, and all its slots are recovery's.
func TestReclaimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("new")
		for i := range 8 {
			w.expired(fmt.Sprint("e", i), 10*time.Second)
		}
		var running meter
		p := w.start("r", &testHandler{run: func(context.Context, Job) Result {
			running.add(1)
			<-time.After(time.Second)
			running.add(-1)
			return Result{}
		}}, func(c *Config) { c.MainLoop, c.Concurrency = false, 8 })
		stillFor(9900 * time.Millisecond)
		require.Empty(t, p.kind.ran(), "no lease has expired yet")
		stillFor(200 * time.Millisecond)
		now, _ := running.read()
		require.Equal(t, 8, now)
		stillFor(5 * time.Second)
		require.Len(t, p.kind.ran(), 8)
		require.Equal(t, taskstate.StatusQueued, w.store.get("new").Status)
		require.InDelta(t, 8, testutil.ToFloat64(p.m.Takeovers), 0)
		for i := range 8 {
			require.Equal(t, 1, w.store.get(fmt.Sprint("e", i)).CrashCount)
		}
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending)
	})
}

// An outage counts no crash: every sweep waits half a lease before its first takeover, and the holder revives its lease.
func TestOutageCountsNoCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		release := make(chan struct{})
		w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }},
			func(c *Config) { c.Recovery = false })
		b := w.start("b", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(time.Second)
		w.expired("gone", 20*time.Second)
		w.store.setFault(func(string) error { return taskstate.ErrUnavailable })
		stillFor(40 * time.Second) // both leases expire
		back := time.Now()
		w.store.setFault(nil)
		stillFor(14 * time.Second)
		require.Empty(t, b.kind.ran(), "half a lease is not over")
		require.Zero(t, w.store.get("x").CrashCount)
		require.True(t, w.store.get("x").LeaseExpiresAt().After(instant()), "the holder revived it")
		stillFor(2 * time.Second)
		require.Equal(t, []string{"gone"}, b.kind.ran())
		require.WithinDuration(t, back.Add(15*time.Second), time.Now(), 2*time.Second)
		close(release)
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
	})
}

// One failed statement is no outage.
func TestOneFailureDelaysNoTakeover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.expired("x", 5*time.Second)
		once := false
		p := w.start("a", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(4 * time.Second)
		w.store.setFault(func(op string) error {
			if op == "nextwake" && !once {
				once = true
				return taskstate.ErrUnavailable
			}
			return nil
		})
		stillFor(2 * time.Second)
		require.True(t, once)
		require.Equal(t, []string{"x"}, p.kind.ran())
	})
}

// The entry that a retry wants is gone: it runs without one, and leaves none behind.
func TestRetryAfterFlush(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.retrying("x", time.Second)
		w.stream.wipe()
		p := w.start("a", &testHandler{})
		stillFor(2 * time.Second)
		require.Equal(t, []string{"x"}, p.kind.ran())
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		_, pending, added, _ := w.stream.counts()
		require.Equal(t, []int{0, 1}, []int{pending, added})
	})
}

// A queue that does not answer keeps no retry waiting.
func TestRetriesRunWithoutTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.retrying("x", time.Second)
		w.stream.setFault(func(string) error { return ingestq.ErrUnavailable })
		p := w.start("a", &testHandler{})
		stillFor(1100 * time.Millisecond)
		require.Equal(t, []string{"x"}, p.kind.ran())
		w.stream.setFault(nil)
		stillFor(10 * time.Second)
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending, "acknowledged when the queue is back")
	})
}

// The answer to a sweep's COMMIT is lost: the very rows are asked, and run at once without a crash counted.
func TestUnknownTakeover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.retrying("x", 0)
		lost := false
		w.store.setFault(func(op string) error {
			if op == "sweep RETRYING!" && !lost {
				lost = true
				return taskstate.ErrOutcomeUnknown
			}
			return nil
		})
		p := w.start("a", &testHandler{})
		stillFor(2 * time.Second)
		require.True(t, lost)
		require.Equal(t, []string{"x"}, p.kind.ran())
		require.Zero(t, w.store.get("x").CrashCount)
		require.Equal(t, int64(2), w.store.get("x").Fence)
	})
}

// Looks for expired leases that win none are a pause apart, however often the recovery loop is woken: a call of the store wakes for
// each claim, and one look is for all that have come to it.
func TestLooksForExpiredLeasesAreApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var looks atomic.Int64
		w.store.setFault(func(op string) error {
			if op == "nextwake" {
				looks.Add(1)
			}
			return nil
		})
		p := w.start("a", &testHandler{})
		stillFor(time.Second)
		before := looks.Load()
		for range 200 {
			p.nudge <- struct{}{}
			stillFor(5 * time.Millisecond)
		}
		require.InDelta(t, 200+4, looks.Load()-before, 10, "each for a retry that is due, one in 250 ms for a lease")
	})
}
