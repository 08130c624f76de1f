package taskrun

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// A long run keeps its lease, with one statement for all tasks and only when one needs it.
func TestHeartbeatKeepsLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for _, id := range []string{"a", "b", "c"} {
			w.task(id)
		}
		release := make(chan struct{})
		w.start("p", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }},
			func(c *Config) { c.StallLimit = nil })
		stillFor(10 * time.Minute)
		for _, id := range []string{"a", "b", "c"} {
			require.Equal(t, int64(1), w.store.get(id).Fence, "nobody took it over")
		}
		n := w.store.called("heartbeat")
		require.InDelta(t, 60, n, 3, "one statement for all, each third of the lease")
		close(release)
	})
}

func TestProgressIsWrittenWithTheHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		release := make(chan struct{})
		p := w.start("p", &testHandler{run: func(_ context.Context, j Job) Result {
			j.Report(taskstate.Progress{Stage: "extract", Percent: 10})
			j.Report(taskstate.Progress{Stage: "embed", Percent: 250, Processed: 3, Total: 12})
			<-release
			return Result{}
		}})
		stillFor(1500 * time.Millisecond)
		require.Equal(t, taskstate.Progress{Stage: "embed", Percent: 99, Processed: 3, Total: 12}, w.store.get("x").Progress)
		require.Equal(t, 1, w.store.called("heartbeat"))
		close(release)
		stillFor(0)
		require.Equal(t, 100, w.store.get("x").Progress.Percent)
		require.GreaterOrEqual(t, testutil.CollectAndCount(p.m.Stage), 2)
	})
}

// A silent stage is failed by its holder: one attempt, and the slot is free again.
func TestStallIsOneFailedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		p := w.start("p", &testHandler{run: func(ctx context.Context, j Job) Result {
			j.Report(taskstate.Progress{Stage: "embed"})
			<-ctx.Done()
			return Result{Err: ctx.Err()}
		}}, func(c *Config) {
			c.Policy.BaseBackoff, c.Concurrency = time.Hour, 1
			c.Policy.MaxBackoff = time.Hour
			c.StallLimit = map[taskstate.Stage]time.Duration{"embed": time.Minute}
		})
		stillFor(70 * time.Second)
		row := w.store.get("x")
		require.Equal(t, taskstate.StatusRetrying, row.Status)
		require.Equal(t, 1, row.AttemptCount)
		require.Equal(t, CodeStalled, row.ErrorCode)
		require.Equal(t, "stage embed: no progress for 1m0s", row.LastError)
		require.Equal(t, 1, p.slots.Idle())
	})
}

// A run that ignores its end: not renewed any more, slot written off, not ready; taken over when its lease ends.
func TestHungRunIsWrittenOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		hang := make(chan struct{})
		var log logged
		w.log = &log
		p := w.start("p", &testHandler{run: func(context.Context, Job) Result { <-hang; return Result{} }},
			func(c *Config) {
				c.Concurrency = 1
				c.StallLimit = map[taskstate.Stage]time.Duration{taskstate.StageNone: time.Minute}
			})
		w.log = nil
		other := w.start("q", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(62 * time.Second)
		require.NoError(t, p.Ready())
		stillFor(5 * time.Second)
		require.ErrorContains(t, p.Ready(), "1 of 1 slots")
		require.Contains(t, log.String(), "TestHungRunIsWrittenOff.", "the stack of the run")
		stillFor(time.Minute)
		require.Equal(t, []string{"x"}, other.kind.ran())
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		require.Equal(t, 1, w.store.get("x").CrashCount)
		close(hang)
		stillFor(time.Second)
		require.NoError(t, p.Ready(), "the slot is back with its run")
		require.Equal(t, 1, p.slots.Idle())
	})
}

// A process whose rows say that it runs a task of which it knows nothing gives it up: nobody else would ever look at it.
func TestWhatAProcessHasForgottenIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		w.task("y")
		release := make(chan struct{})
		var log logged
		w.log = &log
		p := w.start("p", &testHandler{run: func(_ context.Context, j Job) Result { <-release; return Result{} }},
			func(c *Config) { c.StallLimit, c.Recovery = nil, false })
		stillFor(time.Second)
		w.log = nil
		other := w.start("q", &testHandler{}, func(c *Config) { c.MainLoop = false })
		for _, h := range p.claims.All() {
			if h.Task.ID == "x" {
				p.claims.Drop(h)
			}
		}
		stillFor(time.Minute)
		require.Equal(t, []string{"x"}, other.kind.ran())
		require.Contains(t, log.String(), "a task is given up")
		row := w.store.get("x")
		require.Equal(t, []any{taskstate.StatusSucceeded, int64(2), 1}, []any{row.Status, row.Fence, row.CrashCount})
		row = w.store.get("y")
		require.Equal(t, []any{taskstate.StatusRunning, int64(1), 0}, []any{row.Status, row.Fence, row.CrashCount}, "what it holds stays")
		close(release)
		stillFor(time.Second)
	})
}

// The answer to a claim is under way for longer than a lease: the process asks its table meanwhile, and does not give up what it is
// about to run.
func TestAClaimUnderWayIsNotGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		committed := false
		w.store.setFault(func(op string) error {
			if op == "apply!" && !committed {
				committed = true
				<-time.After(40 * time.Second)
			}
			return nil
		})
		p := w.start("p", &testHandler{})
		w.start("q", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(39 * time.Second)
		require.Positive(t, w.store.called("held"))
		row := w.store.get("x")
		require.Equal(t, []any{taskstate.StatusRunning, int64(1)}, []any{row.Status, row.Fence})
		require.True(t, row.LeaseExpiresAt().After(instant()), "the lease of the process is renewed")
		stillFor(5 * time.Second)
		require.Equal(t, []string{"x"}, p.kind.ran())
		row = w.store.get("x")
		require.Equal(t, []any{taskstate.StatusSucceeded, int64(1), 0}, []any{row.Status, row.Fence, row.CrashCount})
	})
}

// A process that has no task is seen to live, from its start on, and writes no more for that than one row each third of a lease.
func TestAnIdleProcessRenewsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start("p", &testHandler{})
		stillFor(2 * time.Second)
		for range 20 {
			stillFor(p.cfg.Policy.Lease / 3)
			require.True(t, w.store.alive("p"))
		}
		require.LessOrEqual(t, w.store.called("renew"), 22)
	})
}
