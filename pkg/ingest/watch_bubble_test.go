package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// watchedStore is as much of a store as the hub reads; its clock is the bubble's.
type watchedStore struct {
	taskstate.Store
	mu    sync.Mutex
	tasks map[string]taskstate.Task
	log   map[string][]taskstate.Transition
	last  int64
	fault error
	looks []time.Time
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
	s.tasks[id] = t
}

func (s *watchedStore) setFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// since answers how many looks there were after a time.
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

// hubBubble runs a hub over a store in a bubble; stop ends it, and the bubble ends only when nothing of it is left.
func hubBubble(t *testing.T, f func(t *testing.T, s *watchedStore, r *Reads, stop func())) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStore()
		r := &Reads{store: s}
		r.hub = newHub(s, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.hub.run(ctx) }()
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
func received(events <-chan TaskEvent) (got []taskstate.Status, open bool) {
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
	hubBubble(t, func(t *testing.T, s *watchedStore, r *Reads, _ func()) {
		s.move("a", taskstate.StatusQueued)
		waited(time.Hour)
		require.Zero(t, s.since(time.Time{}), "nobody watches")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := r.Watch(ctx, Caller{}, "a", 0)
		require.NoError(t, err)
		began := time.Now()
		waited(30 * time.Second)
		require.InDelta(t, 100, s.since(began), 1, "three looks a second")
		cancel()
		waited(watchEvery)
		left := time.Now()
		waited(time.Hour)
		require.Zero(t, s.since(left), "the last client has left")
	})
}

func TestHubSendsEveryChangeWithinALook(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *watchedStore, r *Reads, _ func()) {
		s.move("a", taskstate.StatusQueued)
		events, err := r.Watch(t.Context(), Caller{}, "a", 0)
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

// 1,000 clients come and go while tasks move: each sees its task's end or leaves, and nothing of them stays.
func TestHubForgetsClientsThatComeAndGo(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *watchedStore, r *Reads, _ func()) {
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
				events, err := r.Watch(ctx, Caller{}, fmt.Sprint(i%tasks), 0)
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
		require.Empty(t, r.hub.ids())
	})
}

func TestHubEndsEveryWatchAtAStop(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *watchedStore, r *Reads, stop func()) {
		var all []<-chan TaskEvent
		for i := range 100 {
			id := fmt.Sprint(i)
			s.move(id, taskstate.StatusQueued)
			events, err := r.Watch(t.Context(), Caller{}, id, 0)
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
