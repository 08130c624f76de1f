package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// watching runs the poller of a world until the test ends.
func watching(t *testing.T, r *readWorld) {
	t.Helper()
	r.reads.hub.every = time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.reads.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// next waits for one event.
func next(t *testing.T, events <-chan TaskEvent) TaskEvent {
	t.Helper()
	select {
	case e, ok := <-events:
		require.True(t, ok, "the watch ended")
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event in a minute")
		return TaskEvent{}
	}
}

// ended waits for the end of a watch.
func ended(t *testing.T, events <-chan TaskEvent) {
	t.Helper()
	select {
	case e, ok := <-events:
		require.False(t, ok, "an event after the end: %+v", e)
	case <-time.After(time.Minute):
		t.Fatal("the watch did not end in a minute")
	}
}

func TestWatchShowsEveryChangeInOrder(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		r := newReadWorld(t, w)
		watching(t, r)
		a := w.upload("one")
		events, err := r.reads.Watch(t.Context(), w.caller, a.Task.ID, 0)
		require.NoError(t, err)
		first := next(t, events)
		require.Equal(t, taskstate.StatusQueued, first.Task.Status)
		job, _ := w.claim(a.Task.ID)
		_, err = w.finish(t.Context(), job, taskrun.Result{Err: Transient(CodeVector, "refused")})
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
		var seen []taskstate.Status
		var ids []int64
		for len(seen) == 0 || !seen[len(seen)-1].Terminal() {
			e := next(t, events)
			if len(ids) == 0 || e.TransitionID != ids[len(ids)-1] {
				seen, ids = append(seen, e.Task.Status), append(ids, e.TransitionID)
			}
			if e.Task.Status != taskstate.StatusSucceeded {
				require.Less(t, e.Task.Progress.Percent, 100, "100 %% is for what is visible")
			}
		}
		require.Equal(t, []taskstate.Status{taskstate.StatusRunning, taskstate.StatusRetrying, taskstate.StatusRunning, taskstate.StatusSucceeded}, seen)
		require.IsIncreasing(t, ids)
		ended(t, events)

		resumed, err := r.reads.Watch(t.Context(), w.caller, a.Task.ID, ids[1])
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusRunning, next(t, resumed).Task.Status)
		require.True(t, next(t, resumed).Terminal)
		ended(t, resumed)
		again, err := r.reads.Watch(t.Context(), w.caller, a.Task.ID, ids[3])
		require.NoError(t, err)
		ended(t, again)
		late, err := r.reads.Watch(t.Context(), w.caller, a.Task.ID, 0)
		require.NoError(t, err)
		require.True(t, next(t, late).Terminal, "the present state first")
		ended(t, late)
		_, err = r.reads.Watch(t.Context(), foreign(), a.Task.ID, 0)
		require.ErrorIs(t, err, taskstate.ErrNotFound)
	})
}

// TestAResumedWatchSaysWhatWasTrueThen: a throttle, a failure of another kind and a death come one after the other; a client
// that resumes after each of them is told nothing of what came later.
func TestAResumedWatchSaysWhatWasTrueThen(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		r := newReadWorld(t, w)
		watching(t, r)
		a := w.upload("one")
		live, err := r.reads.Watch(t.Context(), w.caller, a.Task.ID, 0)
		require.NoError(t, err)
		next(t, live)
		var rows []taskstate.Task // as they stood after each transition
		for _, failure := range []*Failure{
			{Code: CodeThrottled, Throttled: true, Err: errors.New("slow down")},
			{Code: CodeThrottled, Throttled: true, Err: errors.New("slow down still")},
			Transient(CodeVector, "refused"),
			Permanent(CodeCorrupt, "Repair it.", "broken"),
		} {
			job, _ := w.claim(a.Task.ID)
			rows = append(rows, w.task(a.Task.ID))
			out, err := w.finish(t.Context(), job, taskrun.Result{Err: failure})
			require.NoError(t, err)
			rows = append(rows, out.After)
			w.advance(2 * time.Hour)
			if w.server && !out.After.Status.Terminal() {
				_, err := w.app.Retry(t.Context(), w.caller, a.Task.ID)
				require.NoError(t, err)
				rows = append(rows, w.task(a.Task.ID))
			}
		}
		log, err := r.reads.Transitions(t.Context(), w.caller, a.Task.ID, 0, 100)
		require.NoError(t, err)
		require.Len(t, log, len(rows)+1)
		check := func(events <-chan TaskEvent, from int) {
			for i := from; i < len(rows); i++ {
				e := next(t, events)
				for e.TransitionID == log[i].ID { // its progress
					e = next(t, events)
				}
				want, got := rows[i], e.Task
				require.Equal(t, log[i+1].ID, e.TransitionID)
				about := fmt.Sprintf("from %d: transition %d, %s %s", from, i+1, log[i+1].Reason, got.Status)
				require.Equal(t, want.Status, got.Status, about)
				require.Equal(t, want.ThrottleCount, got.ThrottleCount, about)
				require.Equal(t, want.LastError, got.LastError, about)
				require.Equal(t, want.ErrorCode, got.ErrorCode, about)
			}
			ended(t, events)
		}
		check(live, 0)
		for from := range rows {
			resumed, err := r.reads.Watch(t.Context(), w.caller, a.Task.ID, log[from].ID)
			require.NoError(t, err)
			check(resumed, from)
		}
	})
}

func TestWatchShowsProgressAndEndsWithItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	r := newReadWorld(t, w)
	watching(t, r)
	a := w.upload("one")
	ctx, cancel := context.WithCancel(t.Context())
	events, err := r.reads.Watch(ctx, w.caller, a.Task.ID, 0)
	require.NoError(t, err)
	next(t, events)
	job, _ := w.claim(a.Task.ID)
	require.Equal(t, taskstate.StatusRunning, next(t, events).Task.Status)
	w.advance(time.Second)
	progress := taskstate.Progress{Stage: taskstate.StageEmbed, Percent: 40, Processed: 4, Total: 10}
	lost, err := w.store.Heartbeat(t.Context(), w.policy.Lease, []taskstate.Beat{{
		TaskID: a.Task.ID, Status: taskstate.StatusRunning, Token: job.Token, Owner: job.Task.LeaseOwner, Progress: &progress,
	}})
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Equal(t, progress, next(t, events).Task.Progress)
	cancel()
	ended(t, events)
}

// countingStore counts what the poller asks.
type countingStore struct {
	taskstate.Store
	tasks, logs atomic.Int64
}

func (s *countingStore) GetMany(ctx context.Context, scope taskstate.Scope, ids []string) ([]taskstate.Task, error) {
	s.tasks.Add(1)
	return s.Store.GetMany(ctx, scope, ids)
}

func (s *countingStore) TransitionsOf(ctx context.Context, after map[string]int64, limit int) ([]taskstate.Transition, error) {
	s.logs.Add(1)
	return s.Store.TransitionsOf(ctx, after, limit)
}

// 1,000 idle watchers cost one statement a look, and a look comes three times a second.
func TestIdleWatchersShareOneStatement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	count := &countingStore{Store: w.store}
	reads, err := NewReads(ReadsDeps{Store: count, Embedder: w.embed, Vectors: w.vectors, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for range 20 {
		a := w.upload(time.Now().String())
		for range 50 {
			_, err := reads.Watch(t.Context(), w.caller, a.Task.ID, 0)
			require.NoError(t, err)
		}
	}
	count.tasks.Store(0)
	count.logs.Store(0)
	require.Equal(t, 20, reads.hub.look(t.Context()))
	require.EqualValues(t, 1, count.tasks.Load())
	require.Zero(t, count.logs.Load())
	require.Equal(t, 300*time.Millisecond, reads.hub.every)
}

// A client that does not read keeps its place and holds nobody up.
func TestSlowWatcherLosesNoChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	r := newReadWorld(t, w)
	a := w.upload("one")
	events, err := r.reads.Watch(t.Context(), w.caller, a.Task.ID, 0)
	require.NoError(t, err)
	const rounds = watchBuffer
	for range rounds {
		job, _ := w.claim(a.Task.ID)
		_, err = w.finish(t.Context(), job, taskrun.Result{Err: &Failure{Code: CodeThrottled, Throttled: true, Err: context.DeadlineExceeded}})
		require.NoError(t, err)
		w.advance(2 * time.Hour)
	}
	_, err = w.app.Cancel(t.Context(), w.caller, a.Task.ID)
	require.NoError(t, err)
	r.reads.hub.look(t.Context())
	n := 0
	for done := false; !done; {
		select {
		case e, ok := <-events:
			if ok {
				n++
				done = e.Terminal
			}
		default:
			r.reads.hub.look(t.Context())
		}
	}
	require.Equal(t, 1+2*rounds+1, n)
}
