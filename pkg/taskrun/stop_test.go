package taskrun

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A stop is not a failure: what ends in time is finished, the rest is handed back with no attempt counted.
func TestStopHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		short, long := w.task("short"), w.task("long")
		kind := &testHandler{run: func(ctx context.Context, j Job) Result {
			limit := time.Hour
			if j.Task.ID == "short" {
				limit = 3 * time.Second
			}
			select {
			case <-time.After(limit):
				return Result{}
			case <-ctx.Done():
				return Result{Err: fmt.Errorf("embed batch 3/12: %w", ctx.Err())}
			}
		}}
		p := w.start("a", kind, func(c *Config) { c.StopGrace = 5 * time.Second })
		stillFor(time.Second)
		began := time.Now()
		p.end(t)
		require.Less(t, time.Since(began), 6*time.Second)
		require.Error(t, p.Ready())
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("short").Status)
		row := w.store.get("long")
		require.Equal(t, taskstate.StatusQueued, row.Status)
		require.Zero(t, row.AttemptCount)
		require.False(t, w.stream.claims(short))
		require.False(t, w.stream.claims(long))
		waiting, pending, added, _ := w.stream.counts()
		require.Equal(t, []int{1, 0, 3}, []int{waiting, pending, added}, "one copy for the one that was handed back")
		require.InDelta(t, 1, testutil.ToFloat64(p.m.HandedBack), 0)
		require.Empty(t, p.claims.All())
	})
}

// A retry whose entry is gone is handed back by a delivery of its own.
func TestStopHandsBackWithoutAnEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.put(taskstate.Task{ID: "x", Status: taskstate.StatusRetrying, NextRetryAt: instant(), WakeAt: instant(), Delivery: "flushed"})
		p := w.start("a", &testHandler{run: func(ctx context.Context, _ Job) Result { <-ctx.Done(); return Result{Err: ctx.Err()} }},
			func(c *Config) { c.StopGrace = 0 })
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusRunning, w.store.get("x").Status)
		p.end(t)
		require.Equal(t, taskstate.StatusQueued, w.store.get("x").Status)
		waiting, _, _, _ := w.stream.counts()
		require.Equal(t, 1, waiting)
	})
}

// Deliveries that were read and could not be claimed go back at a stop, each in one step.
func TestStopReturnsUnclaimedDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.setFault(func(string) error { return taskstate.ErrUnavailable })
		for i := range 3 {
			w.task(fmt.Sprint("t", i))
		}
		p := w.start("a", &testHandler{})
		stillFor(10 * time.Second)
		_, pending, _, _ := w.stream.counts()
		require.Equal(t, 3, pending)
		p.end(t)
		waiting, pending, _, _ := w.stream.counts()
		require.Equal(t, []int{3, 0}, []int{waiting, pending})
		require.Zero(t, w.stream.alive(), "the member leaves last")
	})
}

// A run that ignores the stop is left to its lease; the process ends all the same.
func TestStopDoesNotWaitForAHungRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		hang := make(chan struct{})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-hang; return Result{} }},
			func(c *Config) { c.StopGrace = time.Second })
		stillFor(time.Second)
		began := time.Now()
		p.end(t)
		require.Less(t, time.Since(began), 10*time.Second)
		require.Equal(t, taskstate.StatusRunning, w.store.get("x").Status)
		close(hang)
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusRunning, w.store.get("x").Status, "nobody takes its outcome any more")
	})
}

// With the queue away a stop still ends, and the promise in the row brings the task back.
func TestStopWithoutTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.task("x")
		p := w.start("a", &testHandler{run: func(ctx context.Context, _ Job) Result { <-ctx.Done(); return Result{Err: ctx.Err()} }},
			func(c *Config) { c.StopGrace = 0 })
		stillFor(time.Second)
		w.stream.setFault(func(string) error { return ingestq.ErrUnavailable })
		p.end(t)
		require.Equal(t, taskstate.StatusQueued, w.store.get("x").Status)
		w.stream.setFault(nil)
		b := w.start("b", &testHandler{})
		stillFor(10 * time.Second)
		require.Equal(t, []string{"x"}, b.kind.ran())
	})
}
