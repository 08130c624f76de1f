package taskrun

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// fitProcess starts a runner that asks fit whether it can work.
func (w *world) fitProcess(kind *testHandler, fit func() error, edit ...func(c *Config)) *process {
	w.t.Helper()
	p := w.make("a", kind, edit...)
	deps := p.deps
	deps.Fit = func(context.Context) error { return fit() }
	p.Runner = New(p.cfg, deps)
	ctx, cancel := context.WithCancel(w.t.Context())
	p.stop = cancel
	go func() { p.done <- p.Run(ctx) }()
	w.t.Cleanup(func() { p.end(w.t) })
	return p
}

func TestNothingIsTakenBeforeTheProcessCanWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("new")
		w.task("retry", func(t *taskstate.Task) {
			t.Status, t.NextRetryAt, t.WakeAt, t.AttemptCount = taskstate.StatusRetrying, instant(), instant(), 1
		})
		var missing atomic.Bool
		missing.Store(true)
		p := w.fitProcess(&testHandler{}, func() error {
			if missing.Load() {
				return errors.New("the folder is not there")
			}
			return nil
		})
		stillFor(time.Minute)
		require.Empty(t, p.kind.ran())
		require.ErrorContains(t, p.Ready(), "the folder is not there")
		waiting, pending, _, _ := w.stream.counts()
		require.Equal(t, 0, pending, "nothing is read")
		require.Positive(t, waiting)
		missing.Store(false)
		stillFor(time.Minute)
		require.NoError(t, p.Ready())
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2}, w.store.statuses())
	})
}

// A fault of the process is no attempt of the task: it is handed back, nothing more is taken, and it goes on once the fault is gone.
func TestAFaultOfTheProcessCostsNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		const tasks = 40
		for i := range tasks {
			w.task(fmt.Sprint("t", i))
		}
		var broken atomic.Bool
		broken.Store(true)
		var looks atomic.Int64
		kind := &testHandler{run: func(context.Context, Job) Result {
			if broken.Load() {
				return Result{Err: fmt.Errorf("%w: too many open files", ErrProcess)}
			}
			return Result{}
		}}
		p := w.fitProcess(kind, func() error {
			if looks.Add(1) > 1 && broken.Load() {
				return errors.New("no descriptor is left")
			}
			return nil
		}, func(c *Config) { c.Concurrency = 8 })
		stillFor(10 * time.Minute)
		require.LessOrEqual(t, len(kind.ran()), 8, "what ran when the fault came, and nothing after it")
		require.ErrorContains(t, p.Ready(), "no descriptor is left")
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusQueued: tasks}, w.store.statuses())
		for i := range tasks {
			require.Zero(t, w.store.get(fmt.Sprint("t", i)).AttemptCount)
		}
		broken.Store(false)
		stillFor(10 * time.Minute)
		require.NoError(t, p.Ready())
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: tasks}, w.store.statuses())
		for i := range tasks {
			require.Zero(t, w.store.get(fmt.Sprint("t", i)).AttemptCount)
		}
	})
}

// A program that lacks a part hands the task back without an attempt, stays ready, and a program that has the part runs it:
// also where the first is the only one that recovers.
func TestWhatAnotherProgramDoesIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("retry", func(t *taskstate.Task) {
			t.Status, t.NextRetryAt, t.WakeAt, t.AttemptCount = taskstate.StatusRetrying, instant(), instant(), 1
		})
		lacking := &testHandler{run: func(context.Context, Job) Result {
			return Result{Err: fmt.Errorf("%w: no engine", ErrElsewhere)}
		}}
		reclaimer := w.start("reclaimer", lacking, func(c *Config) { c.MainLoop = false })
		stillFor(time.Minute)
		require.Equal(t, []string{"retry"}, lacking.ran(), "it is taken once, and then waits in the queue")
		require.NoError(t, reclaimer.Ready())
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusQueued: 1}, w.store.statuses())
		worker := w.start("worker", &testHandler{}, func(c *Config) { c.Recovery = false })
		stillFor(time.Minute)
		require.Equal(t, []string{"retry"}, worker.kind.ran())
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 1}, w.store.statuses())
		require.Equal(t, 1, w.store.get("retry").AttemptCount)
	})
}

// A process that has room for three tasks and slots for 16 gets all its work done, without an attempt.
func TestAProcessFindsHowManyTasksItCanRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		const tasks, room = 60, 3
		for i := range tasks {
			w.task(fmt.Sprint("t", i))
		}
		var running meter
		kind := &testHandler{run: func(context.Context, Job) Result {
			running.add(1)
			defer running.add(-1)
			if now, _ := running.read(); now > room {
				return Result{Err: fmt.Errorf("%w: too many open files", ErrProcess)}
			}
			<-time.After(time.Second)
			return Result{}
		}}
		w.fitProcess(kind, func() error { return nil }, func(c *Config) { c.Concurrency = 16 })
		stillFor(time.Hour)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: tasks}, w.store.statuses())
		for i := range tasks {
			require.Zero(t, w.store.get(fmt.Sprint("t", i)).AttemptCount)
		}
	})
}

// A run knows that it has the process for itself: what it then lacks is its own fault.
func TestARunKnowsThatItIsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("large")
		w.task("small")
		alone := atomic.Int64{}
		kind := &testHandler{run: func(_ context.Context, job Job) Result {
			<-time.After(time.Second)
			if job.Task.ID == "small" {
				return Result{}
			}
			if !job.Alone {
				return Result{Err: fmt.Errorf("%w: no space left on device", ErrProcess)}
			}
			alone.Add(1)
			return Result{Err: errHopeless}
		}}
		w.fitProcess(kind, func() error { return nil }, func(c *Config) { c.Concurrency = 4 })
		stillFor(10 * time.Minute)
		require.EqualValues(t, 1, alone.Load())
		require.Equal(t, taskstate.StatusDead, w.store.get("large").Status)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("small").Status)
	})
}
