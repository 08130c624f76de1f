package taskrun

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/delivery"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A healthy backlog is never added again, however long it waits; nobody reads it.
func TestHealthyBacklogIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 3_000 {
			w.store.rows[fmt.Sprint("t", i)] = taskstate.Task{
				ID: fmt.Sprint("t", i), Status: taskstate.StatusQueued, EnqueuedAt: instant(), WakeAt: instant(), Type: "test",
			}
		}
		for i := range 3_000 {
			w.stream.send(fmt.Sprint("t", i))
		}
		w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(time.Minute)
		_, _, added, _ := w.stream.counts()
		require.Equal(t, 3_000, added)
		require.Greater(t, w.store.called("sweep QUEUED"), 25, "it did look")
	})
}

// After FLUSHALL every queued task is promised and added again, once, and runs.
func TestFlushIsMended(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 1500 {
			w.task(fmt.Sprint("t", i))
		}
		stillFor(time.Minute)
		w.stream.wipe()
		r := w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(3 * time.Second)
		waiting, _, added, _ := w.stream.counts()
		require.Equal(t, []int{1500, 3000}, []int{waiting, added})
		require.InDelta(t, 1500, testutil.ToFloat64(r.m.EnqueuedAgain), 0)
		stillFor(time.Minute)
		_, _, added, _ = w.stream.counts()
		require.Equal(t, 3000, added, "what was added again waits in the stream: healthy")
		w.start("a", &testHandler{})
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 1500}, w.store.statuses())
	})
}

// FLUSHALL under a running worker with a backlog: everything runs, once each.
func TestFlushMidBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 200 {
			w.task(fmt.Sprint("t", i))
		}
		p := w.start("a", &testHandler{run: napping(100 * time.Millisecond)})
		stillFor(2 * time.Second)
		w.stream.wipe()
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 200}, w.store.statuses())
		require.Len(t, p.kind.ran(), 200)
	})
}

// A promise whose delivery never came is renewed more and more rarely, at most every 5 minutes.
func TestEnqueuesOfAnAbsentQueueSlowDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.put(taskstate.Task{ID: "x"})
		w.stream.setFault(func(op string) error {
			if op == "publish" {
				return ingestq.ErrUnavailable
			}
			return nil
		})
		p := w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(10 * time.Minute)
		require.InDelta(t, 9, testutil.ToFloat64(p.m.EnqueuedAgain), 2)
		w.stream.setFault(nil)
		w.start("a", &testHandler{})
		stillFor(6 * time.Minute)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
	})
}

// The delivery of a replay or a resume never came: its process died right after the COMMIT, or the queue refused it.
func TestARestartWithoutADeliveryIsEnqueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		actor := taskstate.Actor{Kind: taskstate.ActorOperator, Name: "o"}
		w.task("dead")
		w.task("suspended")
		w.store.change("suspended", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Suspend(m, t, actor, "")
		})
		failing := w.start("a", &testHandler{run: func(context.Context, Job) Result { return Result{Err: errHopeless} }})
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusDead: 1, taskstate.StatusSuspended: 1}, w.store.statuses())
		failing.end(t)
		w.store.change("dead", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Replay(m, t, actor, "")
		})
		w.store.change("suspended", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Resume(m, t, actor, "")
		})
		w.start("b", &testHandler{})
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2}, w.store.statuses())
	})
}

// The clocks of queue and database differ: no healthy backlog is touched, and lost ones are found all the same.
func TestWatermarkWithClockDifference(t *testing.T) {
	for _, skew := range []time.Duration{-30 * time.Second, 30 * time.Second} {
		t.Run(skew.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.stream.skew = skew
				w.store.put(taskstate.Task{ID: "lost"})
				stillFor(10 * time.Second)
				w.task("healthy")
				w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
				stillFor(10 * time.Minute)
				require.Zero(t, w.store.get("healthy").EnqueueCount)
				w.start("a", &testHandler{})
				stillFor(time.Minute)
				require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2}, w.store.statuses())
			})
		})
	}
}

// A process dies between DEAD and its entry: the sweep writes it after the grace, marks the row, acknowledges.
func TestOwedDeadLetterIsWrittenByTheSweep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.stream.give("x", "gone")
		w.store.put(taskstate.Task{
			ID: "x", Status: taskstate.StatusDead, Fence: 3, AttemptCount: 2, DLQ: taskstate.DLQOwed, LastError: "why",
			WakeAt: instant().Add(10 * time.Second), Delivery: id,
		})
		w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(9 * time.Second)
		require.Empty(t, w.stream.deadLetters())
		stillFor(4 * time.Second)
		require.Len(t, w.stream.deadLetters(), 1)
		require.Equal(t, int64(3), w.stream.deadLetters()[0].Fence)
		require.Equal(t, taskstate.DLQWritten, w.store.get("x").DLQ)
		require.False(t, w.stream.claims(id))
		stillFor(time.Minute)
		require.Len(t, w.stream.deadLetters(), 1)
	})
}

// Replayed before its entry was written: the debt is cancelled, no entry of it appears, and the mark touches nothing.
func TestReplayCancelsTheDebt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.put(taskstate.Task{
			ID: "x", Status: taskstate.StatusDead, Fence: 3, DLQ: taskstate.DLQOwed, WakeAt: instant().Add(10 * time.Second),
		})
		p := w.make("r", &testHandler{})
		w.store.change("x", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Replay(m, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}, "")
		})
		require.NoError(t, p.effects.Mark(t.Context(), []delivery.DeadLetter{{Entry: ingestq.DeadLetter{TaskID: "x", Fence: 3}, Token: taskstate.Token{Epoch: 7, Fence: 3}}}))
		stillFor(20 * time.Second)
		require.NoError(t, p.transport.WriteDLQPending(t.Context()))
		require.Empty(t, w.stream.deadLetters())
		require.Equal(t, taskstate.DLQNone, w.store.get("x").DLQ)
	})
}

// Deliveries wait and slots are free, but reads bring nothing: not ready.
func TestStalledWorkerIsNotReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.stream.setFault(func(op string) error {
			if op == "read" {
				<-time.After(500 * time.Millisecond)
				return errNothing
			}
			return nil
		})
		w.task("x")
		p := w.make("a", &testHandler{})
		p.health.Set(func(h *local.Health) { h.Started = true })
		for range 14 {
			require.NoError(t, p.measureOnce(t.Context()))
			require.NoError(t, p.Ready())
			stillFor(2 * time.Second)
		}
		stillFor(2 * time.Second)
		require.NoError(t, p.measureOnce(t.Context()))
		require.ErrorContains(t, p.Ready(), "nothing is taken")
		p.health.Delivered()
		require.NoError(t, p.measureOnce(t.Context()))
		require.NoError(t, p.Ready())
		require.InDelta(t, 1, testutil.ToFloat64(p.m.DueWork), 0)
		require.InDelta(t, 30, testutil.ToFloat64(p.m.OldestDue), 1)
	})
}
