package taskrun

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// poison is a task on its isolated run: one more crash ends it.
func poison(t *taskstate.Task) { t.CrashCount = 2 }

// gated is a kind whose runs wait; it counts how many go on at the same time as the poison.
type gated struct {
	release map[string]chan struct{}

	mu       sync.Mutex
	together int
	running  map[string]bool
}

func newGated(ids ...string) *gated {
	g := &gated{release: map[string]chan struct{}{}, running: map[string]bool{}}
	for _, id := range ids {
		g.release[id] = make(chan struct{})
	}
	return g
}

func (g *gated) handler() *testHandler {
	return &testHandler{run: func(ctx context.Context, j Job) Result {
		g.enter(j.Task.ID)
		defer g.leave(j.Task.ID)
		select {
		case <-g.release[j.Task.ID]:
		case <-ctx.Done():
			return Result{Err: ctx.Err()}
		}
		return Result{}
	}}
}

func (g *gated) enter(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[id] = true
	if g.running["poison"] && len(g.running) > 1 {
		g.together++
	}
}

func (g *gated) leave(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, id)
}

// The reserver reads and claims nothing more, lets its task end, runs the isolated run alone, and goes on.
func TestIsolatedRunRunsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("long")
		g := newGated("long", "poison", "after")
		p := w.start("a", g.handler(), func(c *Config) { c.StallLimit = nil })
		stillFor(time.Second)
		poisoned := w.task("poison", poison)
		stillFor(time.Second)
		row := w.store.get("poison")
		require.Equal(t, taskstate.StatusQueued, row.Status)
		require.Equal(t, "a", row.LeaseOwner[:1])
		require.Empty(t, w.store.path("poison"), "a reservation is no change of status")
		require.True(t, w.stream.claims(poisoned))

		w.task("after")
		stillFor(5 * time.Minute) // the reservation is renewed as long as it takes
		require.Equal(t, []string{"long"}, p.kind.ran())
		waiting, _, _, _ := w.stream.counts()
		require.Equal(t, 1, waiting, "the next delivery is left to others")
		require.True(t, w.store.get("poison").LeaseExpiresAt().After(instant()))

		close(g.release["long"])
		stillFor(time.Second)
		require.Equal(t, []string{"long", "poison"}, p.kind.ran())
		close(g.release["poison"])
		stillFor(2 * time.Second)
		require.Equal(t, []string{"long", "poison", "after"}, p.kind.ran())
		close(g.release["after"])
		stillFor(time.Second)
		require.Zero(t, g.together)
		require.False(t, w.stream.claims(poisoned))
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 3}, w.store.statuses())
	})
}

// Several isolated runs in one read: one is reserved, the others go back to the queue and get their turns, each alone.
func TestManyIsolatedRunsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var now meter
		for i := range 5 {
			w.task(fmt.Sprint("p", i), poison)
		}
		w.start("a", &testHandler{run: func(context.Context, Job) Result {
			now.add(1)
			<-time.After(time.Second)
			now.add(-1)
			return Result{}
		}}, func(c *Config) { c.Concurrency = 8 })
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 5}, w.store.statuses())
		require.Equal(t, 1, now.most)
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending)
	})
}

// One poison file never stops the fleet: while one process waits to run it alone, the other takes everything else.
func TestOneReserverDoesNotStopTheFleet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("long")
		g := newGated("long", "poison")
		a := w.start("a", g.handler())
		stillFor(time.Second)
		w.task("poison", poison)
		stillFor(time.Second)
		require.NotNil(t, a.isolated.Res)
		b := w.start("b", &testHandler{})
		for i := range 20 {
			w.task(fmt.Sprint("t", i))
		}
		w.stream.send("poison") // a duplicate: busy to everybody else
		stillFor(time.Minute)
		require.Len(t, b.kind.ran(), 20)
		close(g.release["long"])
		close(g.release["poison"])
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("poison").Status)
		require.Zero(t, g.together)
	})
}

// A takeover of an isolated run is reserved too, and its crash counts when it is claimed, not before.
func TestTakeoverOfAIsolatedRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("long")
		g := newGated("long", "poison")
		p := w.start("a", g.handler())
		stillFor(time.Second)
		id := w.stream.give("poison", "crashed")
		w.store.put(taskstate.Task{
			ID: "poison", Status: taskstate.StatusRunning, Fence: 5, CrashCount: 1, LeaseOwner: "crashed/1",
			WakeAt: instant(), Delivery: id,
		})
		stillFor(time.Minute)
		row := w.store.get("poison")
		require.Equal(t, 1, row.CrashCount)
		require.Equal(t, int64(5), row.Fence)
		require.Equal(t, "a", row.LeaseOwner[:1])
		close(g.release["long"])
		stillFor(time.Second)
		require.Equal(t, []string{"long", "poison"}, p.kind.ran())
		require.Equal(t, 2, w.store.get("poison").CrashCount)
		close(g.release["poison"])
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("poison").Status)
		require.False(t, w.stream.claims(id), "its own entry was adopted and acknowledged")
	})
}

// At the limit the finder sets DEAD with its dead letter instead of taking over.
func TestCrashLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.stream.give("x", "crashed")
		w.store.put(taskstate.Task{
			ID: "x", Status: taskstate.StatusRunning, Fence: 5, CrashCount: 2, LeaseOwner: "crashed/1",
			WakeAt: instant(), Delivery: id,
		})
		p := w.start("a", &testHandler{})
		stillFor(time.Second)
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusDead, row.Status)
		require.Equal(t, taskstate.DLQWritten, row.DLQ)
		require.Len(t, w.stream.deadLetters(), 1)
		require.False(t, w.stream.claims(id))
		require.InDelta(t, 1, p.result(local.ResultDead), 0)
		require.Empty(t, p.kind.ran())
	})
}

// Cancelled while it waits: the reservation falls, its delivery is acknowledged, the process goes on.
func TestCancelDropsAReservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("long")
		g := newGated("long", "next")
		p := w.start("a", g.handler())
		stillFor(time.Second)
		id := w.task("poison", poison)
		stillFor(time.Second)
		w.store.change("poison", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(m, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}, taskstate.ReasonCancelled, "")
		})
		stillFor(12 * time.Second)
		require.Nil(t, p.isolated.Res)
		require.False(t, w.stream.claims(id))
		w.task("next")
		stillFor(time.Second)
		require.Len(t, p.kind.ran(), 2)
		close(g.release["long"])
		close(g.release["next"])
	})
}

// A stop releases the reservation at once: the row is as free as before, its delivery is copied for others.
func TestStopReleasesAReservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("long")
		g := newGated("long", "poison")
		p := w.start("a", g.handler(), func(c *Config) { c.StopGrace = time.Second })
		stillFor(time.Second)
		id := w.task("poison", poison)
		stillFor(time.Second)
		p.end(t)
		row := w.store.get("poison")
		require.Empty(t, row.LeaseOwner)
		require.True(t, row.LeaseExpiresAt().IsZero())
		require.Equal(t, taskstate.StatusQueued, row.Status)
		require.False(t, w.stream.claims(id))
		b := w.start("b", g.handler())
		close(g.release["poison"])
		close(g.release["long"])
		stillFor(time.Second)
		require.Contains(t, b.kind.ran(), "poison")
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2}, w.store.statuses())
	})
}

// A reservation whose answer was lost is no claim: its fence is still the fence of the holder before.
// The model of pkg/taskstate/spec found it: two processes ran one task with one fence.
func TestUnknownReservationIsNoClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		past := instant().Add(-time.Second)
		w.store.put(taskstate.Task{
			ID: "x", Status: taskstate.StatusRunning, Fence: 5, CrashCount: 1,
			LeaseOwner: "gone/1", WakeAt: past,
		})
		lost := false
		w.store.setFault(func(op string) error {
			if op == "sweep RUNNING!" && !lost {
				lost = true
				return taskstate.ErrOutcomeUnknown
			}
			return nil
		})
		p := w.start("a", &testHandler{})
		stillFor(5 * time.Second)
		require.True(t, lost)
		require.Equal(t, []string{"x"}, p.kind.ran())
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusSucceeded, row.Status)
		require.Equal(t, int64(6), row.Fence, "the run had a fence of its own")
		require.Equal(t, 2, row.CrashCount)
	})
}
