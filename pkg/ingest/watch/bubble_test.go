package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A row that has moved on since the last transition that was read is not shown as that transition's: when many tasks move at
// once, a look reads only the first part of all logs, and one task's may be missing from it.
func TestARowIsNotShownUnderATransitionBeforeIt(t *testing.T) {
	t.Parallel()
	began := time.Now()
	seen := taskstate.Task{ID: "a", Status: taskstate.StatusRetrying, AttemptCount: 4, Fence: 4, UpdatedAt: began, NextRetryAt: began.Add(time.Second)}
	moved := func(change func(*taskstate.Task)) taskstate.Task {
		t := seen
		t.UpdatedAt, t.Progress = began.Add(time.Millisecond), taskstate.Progress{Stage: ingest.StageEmbed, Percent: 50}
		change(&t)
		return t
	}
	for name, c := range map[string]struct {
		row  taskstate.Task
		want int
	}{
		"only its progress": {moved(func(*taskstate.Task) {}), 1},
		"failed again":      {moved(func(t *taskstate.Task) { t.AttemptCount, t.Fence = 5, 5 }), 0},
		"due now":           {moved(func(t *taskstate.Task) { t.NextRetryAt = began }), 0},
		"running":           {moved(func(t *taskstate.Task) { t.Status, t.Fence = taskstate.StatusRunning, 5 }), 0},
	} {
		w := &watcher{id: "a", out: make(chan ingest.TaskEvent, 4), last: 163, seen: seen}
		require.False(t, w.offer(c.row, nil), name)
		require.Len(t, w.out, c.want, name)
	}
}

// A log that was read for those who have seen more is not shown to those who have seen less.
func TestALogIsShownToThoseWhoSawItsBeginning(t *testing.T) {
	t.Parallel()
	r := NewWatches(nil, slog.New(slog.DiscardHandler))
	began := time.Now()
	behind := &watcher{id: "a", out: make(chan ingest.TaskEvent, 4), last: 198, seen: taskstate.Task{ID: "a", Status: taskstate.StatusRunning, UpdatedAt: began}}
	ahead := &watcher{id: "a", out: make(chan ingest.TaskEvent, 4), last: 214}
	r.watchers["a"] = map[*watcher]struct{}{behind: {}, ahead: {}}
	log := []taskstate.Transition{{ID: 239, TaskID: "a", To: taskstate.StatusRunning}, {ID: 250, TaskID: "a", To: taskstate.StatusRetrying, CreatedAt: began.Add(time.Second)}}
	r.deliver(behind.seen, 214, log)
	require.Len(t, ahead.out, 1)
	require.Empty(t, behind.out, "214 comes first")
	require.EqualValues(t, 198, behind.last)
}

// watchedStore is as much of a store as the poller reads; its clock is the bubble's.
type watchedStore struct {
	taskstate.Database
	mu    sync.Mutex
	tasks map[string]taskstate.Task
	log   map[string][]taskstate.Transition
	last  int64
	fault error
	looks []time.Time
	// between runs once, after rows were read and before their logs are; nil: nothing happens there.
	between atomic.Pointer[func()]
}

func newWatchedStore() *watchedStore {
	return &watchedStore{tasks: map[string]taskstate.Task{}, log: map[string][]taskstate.Transition{}}
}

// move writes one change of status.
func (s *watchedStore) move(id string, to taskstate.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	s.last++
	s.log[id] = append(s.log[id], taskstate.Transition{ID: s.last, TaskID: id, From: t.Status, To: to, CreatedAt: time.Now()})
	t.ID, t.Status, t.UpdatedAt = id, to, time.Now()
	if to == taskstate.StatusSucceeded {
		t.Progress = taskstate.Progress{Stage: taskstate.StageDone, Percent: 100}
	}
	s.tasks[id] = t
}

func (s *watchedStore) setFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// since returns how many looks there were after a time.
func (s *watchedStore) since(from time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.looks {
		if at.After(from) {
			n++
		}
	}
	return n
}

func (s *watchedStore) Get(_ context.Context, _ taskstate.Scope, id string) (taskstate.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[id]
	if !ok {
		return t, taskstate.ErrNotFound
	}
	return t, nil
}

func (s *watchedStore) GetMany(_ context.Context, _ taskstate.Scope, ids []string) (out []taskstate.Task, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = append(s.looks, time.Now())
	for _, id := range ids {
		out = append(out, s.tasks[id])
	}
	return out, s.fault
}

func (s *watchedStore) TransitionsOf(_ context.Context, after map[string]int64, _ int) (out []taskstate.Transition, err error) {
	if meanwhile := s.between.Swap(nil); meanwhile != nil {
		(*meanwhile)()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range maps.Keys(after) {
		for _, tr := range s.log[id] {
			if tr.ID > after[id] {
				out = append(out, tr)
			}
		}
	}
	return out, s.fault
}

// pollerBubble runs the poller over a store in a bubble; stop ends it, and the bubble ends only when nothing of it is left.
func pollerBubble(t *testing.T, f func(t *testing.T, s *watchedStore, r *Watches, stop func())) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStore()
		r := NewWatches(s, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		stop := sync.OnceFunc(func() { cancel(); require.NoError(t, <-done) })
		defer stop()
		f(t, s, r, stop)
	})
}

// waited lets time go by in the bubble.
func waited(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// received empties a watch without waiting; open false: it has ended.
func received(events <-chan ingest.TaskEvent) (got []taskstate.Status, open bool) {
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return got, false
			}
			got = append(got, e.Task.Status)
		default:
			return got, true
		}
	}
}

func TestHubLooksOnlyWhileSomebodyWatches(t *testing.T) {
	pollerBubble(t, func(t *testing.T, s *watchedStore, r *Watches, _ func()) {
		s.move("a", taskstate.StatusQueued)
		waited(time.Hour)
		require.Zero(t, s.since(time.Time{}), "nobody watches")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := r.Watch(ctx, ingest.Caller{}, "a", 0)
		require.NoError(t, err)
		began := time.Now()
		waited(30 * time.Second)
		require.InDelta(t, 110, s.since(began), 3, "three looks a second, and some more in the first")
		cancel()
		waited(watchEvery)
		left := time.Now()
		waited(time.Hour)
		require.Zero(t, s.since(left), "the last client has left")
	})
}

// Whoever waits for a short task sees its end after half the time that it took, and not after a whole pause.
func TestTheEndOfAShortTaskIsSeenSoon(t *testing.T) {
	for _, took := range []time.Duration{time.Millisecond, 6 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			pollerBubble(t, func(t *testing.T, s *watchedStore, r *Watches, _ func()) {
				s.move("old", taskstate.StatusQueued) // somebody has watched for long
				_, err := r.Watch(t.Context(), ingest.Caller{}, "old", 0)
				require.NoError(t, err)
				waited(time.Minute)
				s.move("a", taskstate.StatusQueued)
				began := time.Now()
				events, err := r.Watch(t.Context(), ingest.Caller{}, "a", 0)
				require.NoError(t, err)
				<-time.After(took)
				s.move("a", taskstate.StatusSucceeded)
				var last ingest.TaskEvent
				for e := range events {
					last = e
				}
				require.True(t, last.Terminal)
				require.LessOrEqual(t, time.Since(began), max(2*watchFirst, took*3/2+watchFirst))
			})
		})
	}
}

func TestHubSendsEveryChangeWithinALook(t *testing.T) {
	pollerBubble(t, func(t *testing.T, s *watchedStore, r *Watches, _ func()) {
		s.move("a", taskstate.StatusQueued)
		events, err := r.Watch(t.Context(), ingest.Caller{}, "a", 0)
		require.NoError(t, err)
		got, _ := received(events)
		require.Equal(t, []taskstate.Status{taskstate.StatusQueued}, got, "at once")
		s.move("a", taskstate.StatusRunning) // for no time at all
		s.move("a", taskstate.StatusRetrying)
		waited(watchEvery)
		got, _ = received(events)
		require.Equal(t, []taskstate.Status{taskstate.StatusRunning, taskstate.StatusRetrying}, got)
		s.setFault(errors.New("away"))
		s.move("a", taskstate.StatusRunning)
		waited(time.Minute)
		got, open := received(events)
		require.Empty(t, got)
		require.True(t, open, "an absent database ends no watch")
		s.move("a", taskstate.StatusSucceeded)
		s.setFault(nil)
		waited(watchEvery)
		got, open = received(events)
		require.Equal(t, []taskstate.Status{taskstate.StatusRunning, taskstate.StatusSucceeded}, got)
		require.False(t, open)
	})
}

// A task may end between the look at its row and the look at its log: its last event has the row of its end all the same.
func TestAnEndBetweenTwoLooksIsShownWhole(t *testing.T) {
	ends := func(s *watchedStore) {
		end := func() {
			<-time.After(time.Millisecond)
			s.move("a", taskstate.StatusSucceeded)
		}
		s.between.Store(&end)
	}
	for name, begin := range map[string]func(s *watchedStore, r *Watches) (<-chan ingest.TaskEvent, error){
		"of the watch": func(s *watchedStore, r *Watches) (<-chan ingest.TaskEvent, error) {
			s.move("a", taskstate.StatusRunning)
			ends(s)
			return r.Watch(context.Background(), ingest.Caller{}, "a", 0)
		},
		"of the poller": func(s *watchedStore, r *Watches) (<-chan ingest.TaskEvent, error) {
			s.move("a", taskstate.StatusQueued)
			events, err := r.Watch(context.Background(), ingest.Caller{}, "a", 0)
			<-time.After(time.Millisecond)
			s.move("a", taskstate.StatusRunning)
			ends(s)
			return events, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			pollerBubble(t, func(t *testing.T, s *watchedStore, r *Watches, _ func()) {
				events, err := begin(s, r)
				require.NoError(t, err)
				waited(3 * watchEvery)
				var last ingest.TaskEvent
				for e := range events {
					last = e
				}
				require.Equal(t, taskstate.StatusSucceeded, last.Task.Status)
				require.True(t, last.Terminal)
				require.Equal(t, 100, last.Task.Progress.Percent)
			})
		})
	}
}

// 1,000 clients come and go while tasks move: each sees its task's end or leaves, and nothing of them stays.
func TestHubForgetsClientsThatComeAndGo(t *testing.T) {
	pollerBubble(t, func(t *testing.T, s *watchedStore, r *Watches, _ func()) {
		const clients, tasks = 1000, 50
		for i := range tasks {
			s.move(fmt.Sprint(i), taskstate.StatusQueued)
		}
		var saw sync.WaitGroup
		var mu sync.Mutex
		ends := 0
		for i := range clients {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%20)*time.Second)
			saw.Go(func() {
				defer cancel()
				<-time.After(time.Duration(i) * time.Millisecond)
				events, err := r.Watch(ctx, ingest.Caller{}, fmt.Sprint(i%tasks), 0)
				if err != nil {
					t.Error(err)
					return
				}
				for e := range events {
					if e.Terminal {
						mu.Lock()
						ends++
						mu.Unlock()
					}
				}
			})
		}
		for i := range tasks {
			waited(100 * time.Millisecond)
			s.move(fmt.Sprint(i), taskstate.StatusRunning)
		}
		for i := range tasks {
			waited(100 * time.Millisecond)
			s.move(fmt.Sprint(i), taskstate.StatusSucceeded)
		}
		saw.Wait()
		require.Greater(t, ends, clients/4)
		require.Less(t, ends, clients, "some left before the end")
		require.Empty(t, r.watchers)
	})
}

func TestHubEndsEveryWatchAtAStop(t *testing.T) {
	pollerBubble(t, func(t *testing.T, s *watchedStore, r *Watches, stop func()) {
		var all []<-chan ingest.TaskEvent
		for i := range 100 {
			id := fmt.Sprint(i)
			s.move(id, taskstate.StatusQueued)
			events, err := r.Watch(t.Context(), ingest.Caller{}, id, 0)
			require.NoError(t, err)
			all = append(all, events)
		}
		waited(watchEvery)
		stop()
		for _, events := range all {
			_, open := received(events)
			require.False(t, open)
		}
	})
}
