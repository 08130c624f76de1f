package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/watch"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// watching runs the poller of a world until the test ends.
func watching(t *testing.T, r *ingesttest.ReadWorld) {
	t.Helper()
	r.Watches.SetEvery(time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Watches.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// next waits for one event.
func next(t *testing.T, events <-chan ingest.TaskEvent) ingest.TaskEvent {
	t.Helper()
	select {
	case e, ok := <-events:
		require.True(t, ok, "the watch ended")
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event in a minute")
		return ingest.TaskEvent{}
	}
}

// ended waits for the end of a watch.
func ended(t *testing.T, events <-chan ingest.TaskEvent) {
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
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		watching(t, r)
		a := w.Upload("one")
		events, err := r.Watches.Watch(t.Context(), w.Caller, a.Task.ID, 0)
		require.NoError(t, err)
		first := next(t, events)
		require.Equal(t, taskstate.StatusQueued, first.Task.Status)
		job, _ := w.Claim(a.Task.ID)
		_, err = w.Finish(t.Context(), job, taskrun.Result{Err: ingest.Transient(ingest.CodeVector, "refused")})
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
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

		resumed, err := r.Watches.Watch(t.Context(), w.Caller, a.Task.ID, ids[1])
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusRunning, next(t, resumed).Task.Status)
		require.True(t, next(t, resumed).Terminal)
		ended(t, resumed)
		again, err := r.Watches.Watch(t.Context(), w.Caller, a.Task.ID, ids[3])
		require.NoError(t, err)
		ended(t, again)
		late, err := r.Watches.Watch(t.Context(), w.Caller, a.Task.ID, 0)
		require.NoError(t, err)
		require.True(t, next(t, late).Terminal, "the present state first")
		ended(t, late)
		_, err = r.Watches.Watch(t.Context(), ingesttest.Foreign(), a.Task.ID, 0)
		require.ErrorIs(t, err, taskstate.ErrNotFound)
	})
}

// TestAResumedWatchSaysWhatWasTrueThen: a throttle, a failure of another kind, one that waits for a person and a death come one after
// the other; a client that resumes after each of them is told nothing of what came later.
func TestAResumedWatchSaysWhatWasTrueThen(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		watching(t, r)
		a := w.Upload("one")
		live, err := r.Watches.Watch(t.Context(), w.Caller, a.Task.ID, 0)
		require.NoError(t, err)
		next(t, live)
		var rows []taskstate.Task // as they stood after each transition
		for _, failure := range []*ingest.Failure{
			{Code: ingest.CodeThrottled, Throttled: true, Err: errors.New("slow down")},
			{Code: ingest.CodeThrottled, Throttled: true, Err: errors.New("slow down still")},
			ingest.Transient(ingest.CodeVector, "refused"),
			ingest.Suspended(ingest.CodeDimension, "Use the other model.", "another model"),
			ingest.Permanent(ingest.CodeCorrupt, "Repair it.", "broken"),
		} {
			job, _ := w.Claim(a.Task.ID)
			rows = append(rows, w.Task(a.Task.ID))
			out, err := w.Finish(t.Context(), job, taskrun.Result{Err: failure})
			require.NoError(t, err)
			rows = append(rows, out.After)
			w.Advance(2 * time.Hour)
			again := w.App.Retry
			switch {
			case failure.Suspend:
				again = func(ctx context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
					return w.App.Resume(ctx, ingest.Caller{Scope: taskstate.System()}, id, "mended")
				}
			case !w.Server || out.After.Status.Terminal():
				continue
			}
			_, err = again(t.Context(), w.Caller, a.Task.ID)
			require.NoError(t, err)
			rows = append(rows, w.Task(a.Task.ID))
		}
		log, err := r.Reads.Transitions(t.Context(), w.Caller, a.Task.ID, 0, 100)
		require.NoError(t, err)
		require.Len(t, log, len(rows)+1)
		check := func(events <-chan ingest.TaskEvent, from int) {
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
			resumed, err := r.Watches.Watch(t.Context(), w.Caller, a.Task.ID, log[from].ID)
			require.NoError(t, err)
			check(resumed, from)
		}
	})
}

func TestWatchShowsProgressAndEndsWithItsClient(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	watching(t, r)
	a := w.Upload("one")
	ctx, cancel := context.WithCancel(t.Context())
	events, err := r.Watches.Watch(ctx, w.Caller, a.Task.ID, 0)
	require.NoError(t, err)
	next(t, events)
	job, _ := w.Claim(a.Task.ID)
	require.Equal(t, taskstate.StatusRunning, next(t, events).Task.Status)
	w.Advance(time.Second)
	progress := taskstate.Progress{Stage: ingest.StageEmbed, Percent: 40, Processed: 4, Total: 10}
	lost, err := w.Store.Heartbeat(t.Context(), w.Policy.Lease, []taskstate.Beat{{
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
	taskstate.Database
	tasks, logs atomic.Int64
}

func (s *countingStore) GetMany(ctx context.Context, scope taskstate.Scope, ids []string) ([]taskstate.Task, error) {
	s.tasks.Add(1)
	return s.Database.GetMany(ctx, scope, ids)
}

func (s *countingStore) TransitionsOf(ctx context.Context, after map[string]int64, limit int) ([]taskstate.Transition, error) {
	s.logs.Add(1)
	return s.Database.TransitionsOf(ctx, after, limit)
}

// 1,000 idle watchers cost one statement a look, and a look comes three times a second.
func TestIdleWatchersShareOneStatement(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	count := &countingStore{Database: w.Store}
	reads := watch.NewWatches(count, slog.New(slog.DiscardHandler))
	for range 20 {
		a := w.Upload(time.Now().String())
		for range 50 {
			_, err := reads.Watch(t.Context(), w.Caller, a.Task.ID, 0)
			require.NoError(t, err)
		}
	}
	count.tasks.Store(0)
	count.logs.Store(0)
	require.Equal(t, 20, reads.Look(t.Context()))
	require.EqualValues(t, 1, count.tasks.Load())
	require.Zero(t, count.logs.Load())
	require.Equal(t, 300*time.Millisecond, reads.Every())
}

// A client that does not read keeps its place and holds nobody up.
func TestSlowWatcherLosesNoChange(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	a := w.Upload("one")
	events, err := r.Watches.Watch(t.Context(), w.Caller, a.Task.ID, 0)
	require.NoError(t, err)
	const rounds = watch.Buffer
	for range rounds {
		job, _ := w.Claim(a.Task.ID)
		_, err = w.Finish(t.Context(), job, taskrun.Result{Err: &ingest.Failure{Code: ingest.CodeThrottled, Throttled: true, Err: context.DeadlineExceeded}})
		require.NoError(t, err)
		w.Advance(2 * time.Hour)
	}
	_, err = w.App.Cancel(t.Context(), w.Caller, a.Task.ID)
	require.NoError(t, err)
	r.Watches.Look(t.Context())
	n := 0
	for done := false; !done; {
		select {
		case e, ok := <-events:
			if ok {
				n++
				done = e.Terminal
			}
		default:
			r.Watches.Look(t.Context())
		}
	}
	require.Equal(t, 1+2*rounds+1, n)
}

// A killed database may have lost a transition that was shown. Who resumes after it is told the present state under the
// transition that stands in the log, whether the lost number lies before it or behind it, and the end of a task that has ended.
func TestAWatchResumesAfterALostTransition(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	watching(t, r)
	other := w.Upload("other")
	a := w.Upload("one")
	log := func() []taskstate.Transition {
		log, err := r.Reads.Transitions(t.Context(), w.Caller, a.Task.ID, 0, 100)
		require.NoError(t, err)
		return log
	}
	first := func(after int64) ingest.TaskEvent {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := r.Watches.Watch(ctx, w.Caller, a.Task.ID, after)
		require.NoError(t, err)
		return next(t, events)
	}
	foreign, err := r.Reads.Transitions(t.Context(), w.Caller, other.Task.ID, 0, 1)
	require.NoError(t, err)
	for _, lost := range []int64{foreign[0].ID, 1_000_000} {
		e := first(lost)
		require.Equal(t, log()[0].ID, e.TransitionID)
		require.Equal(t, taskstate.StatusQueued, e.Task.Status)
	}
	w.Process(a.Task.ID)
	for _, lost := range []int64{foreign[0].ID, 1_000_000} {
		e := first(lost)
		require.Equal(t, log()[2].ID, e.TransitionID)
		require.Equal(t, taskstate.StatusSucceeded, e.Task.Status)
		require.True(t, e.Terminal)
	}
}
