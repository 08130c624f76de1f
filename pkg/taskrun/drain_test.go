package taskrun

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// A process that an operator drains ends what it has and takes nothing more, neither deliveries nor due retries; others go on. It leaves
// its group, stays to be seen, and takes work again when the operator has thought better of it.
func TestADrainedProcessEndsWhatItHasAndTakesNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		held := make(chan struct{})
		kind := &testHandler{run: func(_ context.Context, j Job) Result {
			if j.Task.ID == "held" {
				<-held
			}
			return Result{}
		}}
		w.task("held")
		a := w.start("a", kind)
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusRunning, w.store.get("held").Status)
		require.NoError(t, w.store.Drain(t.Context(), "a", false, time.Hour, nil))
		stillFor(2 * a.cfg.Policy.Lease)
		require.ErrorContains(t, a.Ready(), "an operator drains this process")
		w.task("new")
		w.task("retry", func(t *taskstate.Task) {
			t.Status, t.NextRetryAt, t.WakeAt, t.AttemptCount = taskstate.StatusRetrying, instant(), instant(), 1
		})
		stillFor(2 * a.cfg.Policy.Lease)
		require.Equal(t, "asked", w.store.drainOf("a"), "it has a task yet")
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusRunning: 1, taskstate.StatusQueued: 1, taskstate.StatusRetrying: 1}, w.store.statuses())

		close(held)
		stillFor(2 * a.cfg.Policy.Lease)
		require.Equal(t, "drained", w.store.drainOf("a"))
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("held").Status)
		require.Equal(t, 1, len(kind.ran()))
		w.store.mu.Lock()
		require.True(t, w.store.leases["a"].After(instant()), "it is seen to live")
		w.store.mu.Unlock()

		b := w.start("b", &testHandler{})
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 3}, w.store.statuses())
		b.end(t)
		w.task("last")
		stillFor(time.Minute)
		require.Equal(t, taskstate.StatusQueued, w.store.get("last").Status)
		require.NoError(t, w.store.Drain(t.Context(), "a", true, time.Hour, nil))
		stillFor(2 * a.cfg.Policy.Lease)
		require.NoError(t, a.Ready())
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("last").Status)
	})
}
