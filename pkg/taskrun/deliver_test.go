package taskrun

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestDeliveriesRunOnceAndAreAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 50 {
			w.task(fmt.Sprint("t", i))
		}
		p := w.start("a", &testHandler{})
		stillFor(time.Second)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 50}, w.store.statuses())
		require.Len(t, p.kind.ran(), 50)
		waiting, pending, added, _ := w.stream.counts()
		require.Equal(t, []int{0, 0, 50}, []int{waiting, pending, added})
		require.InDelta(t, 50, p.result(local.ResultSucceeded), 0)
		require.NoError(t, p.Ready())
	})
}

func TestNoMoreIsReadThanSlotsAreFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 10 {
			w.task(fmt.Sprint("t", i))
		}
		release := make(chan struct{})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }},
			func(c *Config) { c.Concurrency = 3 })
		stillFor(time.Minute)
		_, pending, _, _ := w.stream.counts()
		require.Equal(t, 3, pending)
		require.Len(t, p.kind.ran(), 3)
		release <- struct{}{} // a free slot is used at once
		stillFor(0)
		require.Len(t, p.kind.ran(), 4)
		close(release)
		stillFor(0)
		require.Len(t, p.kind.ran(), 10)
	})
}

// Each row of D4's table for a new delivery.
func TestAnswersOfClaims(t *testing.T) {
	live := func(t *taskstate.Task) {
		t.Status, t.Fence, t.LeaseOwner, t.WakeAt = taskstate.StatusRunning, 4, "other/1", instant().Add(time.Hour)
	}
	later := func(t *taskstate.Task) {
		t.Status, t.NextRetryAt, t.WakeAt = taskstate.StatusRetrying, instant().Add(time.Hour), instant().Add(time.Hour)
	}
	in := func(s taskstate.Status) func(t *taskstate.Task) {
		return func(t *taskstate.Task) { t.Status = s }
	}
	for _, c := range []struct {
		name   string
		edit   func(t *taskstate.Task)
		own    bool // the row names this very delivery
		keeps  bool // the delivery stays pending
		result string
	}{
		{"busy", live, false, false, local.ResultBusy},
		{"busy own", live, true, true, local.ResultBusy},
		{"not due", later, false, false, local.ResultNotDue},
		{"not due own", later, true, true, local.ResultNotDue},
		{"succeeded", in(taskstate.StatusSucceeded), true, false, local.ResultSkipped},
		{"cancelled", in(taskstate.StatusCancelled), true, false, local.ResultSkipped},
		{"suspended", in(taskstate.StatusSuspended), true, false, local.ResultSkipped},
		{"dead", in(taskstate.StatusDead), true, false, local.ResultSkipped},
		{"gone", nil, false, false, local.ResultSkipped},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				id := w.stream.send("x")
				if c.edit != nil {
					row := taskstate.Task{ID: "x"}
					c.edit(&row)
					if c.own {
						row.Delivery = id
					}
					w.store.put(row)
				}
				before := w.store.get("x")
				p := w.start("a", &testHandler{})
				stillFor(time.Second)
				require.Empty(t, p.kind.ran())
				require.Equal(t, c.keeps, w.stream.claims(id))
				require.InDelta(t, 1, p.result(c.result), 0)
				require.Equal(t, before, w.store.get("x"))
			})
		})
	}
}

func TestOwedDeadLetterGoesBeforeTheAcknowledgement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.task("x", func(t *taskstate.Task) {
			t.Status, t.Fence, t.DLQ, t.LastError = taskstate.StatusDead, 9, taskstate.DLQOwed, "why"
			t.WakeAt = instant().Add(time.Hour)
		})
		w.stream.setFault(func(op string) error {
			if op == "dead letters" {
				return ingestq.ErrUnavailable
			}
			return nil
		})
		w.start("a", &testHandler{})
		stillFor(time.Minute)
		require.True(t, w.stream.claims(id), "not acknowledged before its entry is written")
		require.Equal(t, taskstate.DLQOwed, w.store.get("x").DLQ)
	})
}

func TestDuplicatesInOneReadAndLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		w.stream.send("x")
		release := make(chan struct{})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }})
		stillFor(0)
		w.stream.send("x")
		stillFor(time.Second)
		_, pending, _, _ := w.stream.counts()
		require.Equal(t, 1, pending, "only the delivery that is the row's own")
		close(release)
		stillFor(0)
		require.Len(t, p.kind.ran(), 1)
		_, pending, _, _ = w.stream.counts()
		require.Zero(t, pending)
	})
}

// A claim that replaces the row's delivery acknowledges the old one at once.
func TestReplacedDeliveryIsAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.stream.give("x", "gone")
		w.store.put(taskstate.Task{ID: "x", Delivery: old})
		next := w.stream.send("x")
		release := make(chan struct{})
		w.start("a", &testHandler{run: func(context.Context, Job) Result { <-release; return Result{} }})
		stillFor(0)
		require.False(t, w.stream.claims(old))
		require.True(t, w.stream.claims(next))
		require.Equal(t, next, w.store.get("x").Delivery)
		close(release)
	})
}

func TestUndecodableIsPutAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.stream.garbage()
		w.task("x")
		p := w.start("a", &testHandler{}, func(c *Config) { c.Concurrency = 1 })
		stillFor(time.Second)
		require.Len(t, w.stream.raw(), 1)
		require.False(t, w.stream.claims(id))
		require.Len(t, p.kind.ran(), 1)
	})
}

// A store that is away keeps what was read until it is back; a queue that is away is asked again.
func TestOutagesAreOutlived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.setFault(func(string) error { return taskstate.ErrUnavailable })
		w.task("x")
		p := w.start("a", &testHandler{})
		stillFor(time.Minute)
		require.Error(t, p.Ready())
		require.Empty(t, p.kind.ran())
		w.store.setFault(nil)
		stillFor(10 * time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		require.NoError(t, p.Ready())

		w.stream.setFault(func(string) error { return ingestq.ErrUnavailable })
		w.task("y")
		stillFor(time.Minute)
		require.ErrorIs(t, p.Ready(), ingestq.ErrUnavailable)
		w.stream.setFault(nil)
		stillFor(10 * time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("y").Status)
		require.NoError(t, p.Ready())
	})
}

// The answer to the claim's COMMIT is lost: the second try finds the claim to be its own.
func TestUnknownClaimIsNotBusyToItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		lost := false
		w.store.setFault(func(op string) error {
			if op == "apply!" && !lost {
				lost = true
				return taskstate.ErrOutcomeUnknown
			}
			return nil
		})
		id := w.task("x")
		p := w.start("a", &testHandler{})
		stillFor(time.Second)
		require.True(t, lost)
		require.Len(t, p.kind.ran(), 1)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
		require.Equal(t, int64(1), w.store.get("x").Fence)
		require.False(t, w.stream.claims(id))
	})
}

// The OnTransition hook of a claim fails for one task only: the others run.
func TestOneBadClaimFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		bad := errors.New("bad row")
		kind := &testHandler{onTransition: func(changed []taskstate.Decision, _ map[string]any) error {
			for _, d := range changed {
				if d.TaskID == "bad" {
					return bad
				}
			}
			return nil
		}}
		for _, id := range []string{"a", "bad", "c"} {
			w.task(id)
		}
		p := w.start("p", kind)
		stillFor(time.Second)
		require.ElementsMatch(t, []string{"a", "c"}, p.kind.ran())
		require.Equal(t, taskstate.StatusQueued, w.store.get("bad").Status)
	})
}
