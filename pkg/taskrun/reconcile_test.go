package taskrun

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

var errNothing = errors.New("nothing")

// napping is a run that takes d.
func napping(d time.Duration) func(context.Context, Job) Result {
	return func(context.Context, Job) Result {
		<-time.After(d)
		return Result{}
	}
}

// PEL reconciling, row by row of design D4.
func TestReconcileTable(t *testing.T) {
	later := func() time.Time { return instant().Add(time.Hour) }
	const (
		leaves = "leaves"
		acks   = "acks"
		copies = "copies"
	)
	for _, c := range []struct {
		name  string
		row   *taskstate.Task
		alive bool          // its consumer's heartbeat
		idle  time.Duration // since it was read
		conf  time.Duration // RECLAIM_IDLE
		does  string
		dead  int // dead letters written
	}{
		{"succeeded", &taskstate.Task{Status: taskstate.StatusSucceeded}, true, 20 * time.Minute, 10 * time.Minute, acks, 0},
		{"cancelled", &taskstate.Task{Status: taskstate.StatusCancelled}, true, 20 * time.Minute, 10 * time.Minute, acks, 0},
		{"suspended", &taskstate.Task{Status: taskstate.StatusSuspended}, true, 20 * time.Minute, 10 * time.Minute, acks, 0},
		{"dead, entry written", &taskstate.Task{Status: taskstate.StatusDead, DLQ: taskstate.DLQWritten}, true, 20 * time.Minute, 10 * time.Minute, acks, 0},
		{"dead, entry owed", &taskstate.Task{Status: taskstate.StatusDead, DLQ: taskstate.DLQOwed, WakeAt: later()}, true, 20 * time.Minute, 10 * time.Minute, acks, 1},
		{"running", &taskstate.Task{Status: taskstate.StatusRunning, WakeAt: later()}, false, 20 * time.Minute, 10 * time.Minute, leaves, 0},
		{"running, lease expired", &taskstate.Task{Status: taskstate.StatusRunning, WakeAt: later()}, false, 20 * time.Minute, 10 * time.Minute, leaves, 0},
		{"retrying, not due", &taskstate.Task{Status: taskstate.StatusRetrying, NextRetryAt: later(), WakeAt: later()}, false, 20 * time.Minute, 10 * time.Minute, leaves, 0},
		{"retrying, due", &taskstate.Task{Status: taskstate.StatusRetrying, WakeAt: later()}, false, 20 * time.Minute, 10 * time.Minute, leaves, 0},
		{"queued, reader gone", &taskstate.Task{Status: taskstate.StatusQueued}, false, 10 * time.Minute, 10 * time.Minute, copies, 0},
		{"queued, reader alive, idle long", &taskstate.Task{Status: taskstate.StatusQueued}, true, 10 * time.Minute, 10 * time.Minute, copies, 0},
		{"young", &taskstate.Task{Status: taskstate.StatusSucceeded}, false, 9 * time.Minute, 10 * time.Minute, leaves, 0},
		{"idle 0 robs no live reader", &taskstate.Task{Status: taskstate.StatusQueued}, true, 29 * time.Second, 0, leaves, 0},
		{"idle 0, longer than a lease", &taskstate.Task{Status: taskstate.StatusQueued}, true, 30 * time.Second, 0, copies, 0},
		{"idle 0, reader gone", &taskstate.Task{Status: taskstate.StatusQueued}, false, 0, 0, copies, 0},
		{"queued, reserved", &taskstate.Task{Status: taskstate.StatusQueued, LeaseOwner: "o/1", WakeAt: later()}, true, 20 * time.Minute, 10 * time.Minute, leaves, 0},
		{"unknown row", nil, true, 20 * time.Minute, 10 * time.Minute, acks, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				member := w.stream.Join("reader")
				id := w.stream.give("x", member.Name())
				if !c.alive {
					w.stream.kill(member.Name())
				}
				if c.row != nil {
					row := *c.row
					row.ID, row.Delivery = "x", id
					// the table was made before the bubble's clock began
					shift := func(at *time.Time) {
						if !at.IsZero() {
							*at = instant().Add(time.Hour)
						}
					}
					shift(&row.WakeAt)
					shift(&row.NextRetryAt)
					w.store.put(row)
				}
				stillFor(c.idle)
				enqueued := w.store.get("x").EnqueuedAt
				p := w.make("r", &testHandler{}, func(cfg *Config) { cfg.Reconcile.Idle = c.conf })
				require.NoError(t, once(p, "reconcile pending entries")(t.Context()))
				require.True(t, p.effects.Round(t.Context()))
				waiting, pending, added, dead := w.stream.counts()
				want := map[string][]int{leaves: {0, 1, 1}, acks: {0, 0, 1}, copies: {1, 0, 2}}[c.does]
				require.Equal(t, want, []int{waiting, pending, added})
				require.Equal(t, c.dead, dead)
				if c.does == copies {
					require.Equal(t, instant(), w.store.get("x").EnqueuedAt, "a new promise before the copy")
				} else {
					require.Equal(t, enqueued, w.store.get("x").EnqueuedAt)
				}
				if c.dead > 0 {
					require.Equal(t, taskstate.DLQWritten, w.store.get("x").DLQ)
				}
			})
		})
	}
}

// Undecodable entries are put away raw; entries whose data was trimmed are acknowledged.
func TestReconcileWithoutAnEnvelope(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.stream.Join("reader")
		bad := w.stream.garbage()
		gone := w.stream.send("x")
		_, err := m.Read(t.Context(), 10, time.Second)
		require.NoError(t, err)
		w.stream.deleteData(gone)
		stillFor(time.Hour)
		p := w.make("r", &testHandler{})
		require.NoError(t, once(p, "reconcile pending entries")(t.Context()))
		require.True(t, p.effects.Round(t.Context()))
		require.Len(t, w.stream.raw(), 1)
		require.False(t, w.stream.claims(bad))
		require.False(t, w.stream.claims(gone))
	})
}

// Old entries behind many young ones, more than a batch: all are settled in one go.
func TestReconcileGoesOnWhileBatchesAreFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.stream.Join("reader")
		for range 95 {
			w.stream.send("nobody")
		}
		_, err := m.Read(t.Context(), 100, time.Second)
		require.NoError(t, err)
		stillFor(time.Hour)
		p := w.make("r", &testHandler{}, func(c *Config) { c.Reconcile.Batch = 20 })
		require.NoError(t, once(p, "reconcile pending entries")(t.Context()))
		require.True(t, p.effects.Round(t.Context()))
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending)
		require.InDelta(t, 95, p.result(local.ResultSkipped), 0)
	})
}

// The row was claimed between the look and the act: its promise is not renewed, so no copy is made.
func TestReconcileLosesARaceWithAClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.stream.give("x", "gone")
		w.store.put(taskstate.Task{ID: "x"})
		stillFor(time.Hour)
		p := w.make("r", &testHandler{})
		w.store.setFault(func(op string) error {
			if op == "apply" { // between reconciling's look and its act
				row := w.store.get("x")
				row.Status, row.Delivery, row.WakeAt = taskstate.StatusRunning, id, instant().Add(time.Hour)
				w.store.rows["x"] = row
			}
			return nil
		})
		require.NoError(t, once(p, "reconcile pending entries")(t.Context()))
		require.True(t, p.effects.Round(t.Context()))
		require.True(t, w.stream.claims(id))
		_, _, added, _ := w.stream.counts()
		require.Equal(t, 1, added)
	})
}

// Entries of retries that wait longer than a pin may are let go, and only such; then the stream is trimmed.
func TestPinsAreUnpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.retrying("r", time.Hour)
		w.expired("x", time.Hour)
		stillFor(14 * time.Minute)
		p := w.make("a", &testHandler{})
		require.NoError(t, once(p, "trim the stream")(t.Context()))
		_, pending, _, _ := w.stream.counts()
		require.Equal(t, 2, pending)
		stillFor(time.Minute)
		require.NoError(t, once(p, "trim the stream")(t.Context()))
		require.False(t, w.stream.claims(w.store.get("r").Delivery))
		require.True(t, w.stream.claims(w.store.get("x").Delivery))
		require.Equal(t, 2, w.stream.calls("trim"))
	})
}

// RECLAIM_ENABLED=false stops reconciling and nothing else.
func TestSettlingCanBeOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.stream.give("nobody", "gone")
		w.retrying("x", time.Second)
		p := w.start("r", &testHandler{}, func(c *Config) { c.MainLoop, c.Reconcile.Enabled = false, false })
		stillFor(time.Hour)
		require.True(t, w.stream.claims(id))
		require.Equal(t, []string{"x"}, p.kind.ran())
		require.NotZero(t, w.stream.calls("trim"))
	})
}
