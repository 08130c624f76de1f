package mirror_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

// stands is after how many looks at the clock some rounds of an empty queue are over.
const stands = 20

// visit goes round and returns the status of each task that was met.
func (w *world) visit(v mirror.Visit) map[string]taskstate.Status {
	w.t.Helper()
	return w.visitBy(time.Now, v)
}

// visitBy is visit by another clock.
func (w *world) visitBy(clock func() time.Time, v mirror.Visit) map[string]taskstate.Status {
	w.t.Helper()
	m, err := mirror.New(w.cfg, mirror.Deps{DB: w.tasks, Name: "visitor", Log: slog.New(slog.DiscardHandler), Clock: clock})
	require.NoError(w.t, err)
	met := map[string]taskstate.Status{}
	each := v.Each
	v.Each = func(ctx context.Context, copies []mirror.Copy) error {
		for _, c := range copies {
			met[c.Task.ID] = c.Status
		}
		if each == nil {
			return nil
		}
		return each(ctx, copies)
	}
	require.NoError(w.t, m.Visit(w.t.Context(), v))
	return met
}

// A visitor meets every copy with the status of its row, leaves all of unfinished work and of lost tasks, and acknowledges ended ones
// unless it only looks.
func TestAVisitMeetsEveryCopy(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		ids := w.submit(120) // more than one batch
		m := w.start()
		m.knows(len(ids))
		m.stop()
		w.suspend(ids[1])
		w.cancel(ids[2])
		lost := &pb.TaskEnvelope{SchemaVersion: 1, TaskId: uuid.Must(uuid.NewV7()).String(), Type: "document", UserId: "anna", Channel: "http"}
		body, err := pb.Encode(lost)
		require.NoError(t, err)
		w.put(amqp.Publishing{MessageId: lost.GetTaskId(), Body: body, Headers: amqp.Table{"requestHash": "abc"}})
		w.put(amqp.Publishing{Body: []byte("nobody's")})
		for _, look := range []bool{true, false} {
			met := w.visit(mirror.Visit{Look: look, Each: func(_ context.Context, copies []mirror.Copy) error {
				for _, c := range copies {
					if c.Task.ID == lost.GetTaskId() {
						require.Equal(t, "abc", c.Task.RequestHash)
						require.Equal(t, "anna", c.Task.UserID)
					}
				}
				return nil
			}})
			require.Len(t, met, 121)
			require.Equal(t, []taskstate.Status{taskstate.StatusQueued, taskstate.StatusSuspended, taskstate.StatusCancelled, taskstate.StatusNone},
				[]taskstate.Status{met[ids[0]], met[ids[1]], met[ids[2]], met[lost.GetTaskId()]})
			want := 121
			if look {
				want++
			}
			w.copies(want)
		}
		require.Zero(t, w.ready(dlq(w)))
		for _, d := range w.messages() {
			require.Zero(t, d.Headers["x-delivery-count"])
		}
	})
}

// The mirror that acts rotates copies while a visitor goes round: none is passed over. The visitor's clock stands still until it has met
// them: on a slow machine the mirror may hold some for longer than a visitor waits.
func TestAVisitBesideTheMirrorMeetsEveryCopy(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(400)
	m := w.start()
	m.knows(len(ids))
	began, left := time.Now(), map[string]bool{}
	for _, id := range ids {
		left[id] = true
	}
	clock := func() time.Time {
		if len(left) > 0 {
			return began
		}
		return time.Now()
	}
	batches := 0
	w.visitBy(clock, mirror.Visit{Each: func(_ context.Context, copies []mirror.Copy) error {
		for _, c := range copies {
			require.NotEqual(t, taskstate.StatusNone, c.Status)
			delete(left, c.Task.ID)
		}
		if batches++; batches%2 == 1 && len(left) > 0 { // each ended task makes the mirror go round
			w.cancel(w.submit(1)...)
		}
		return nil
	}})
	require.Empty(t, left)
	m.knows(len(ids))
	w.eventually("every task has its copy", func() bool { return w.ready(w.cfg.Queue) >= len(ids) })
	m.stop()
	require.Len(t, byTask(t, w.messages()), len(ids))
}

// Copies that somebody else holds when a visitor comes are met once they are back; a visitor of an empty queue ends.
func TestAVisitWaitsForCopiesThatOthersHold(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	require.Empty(t, w.visit(mirror.Visit{}))
	ids := w.submit(3)
	m := w.start()
	m.knows(3)
	m.stop()
	var held []amqp.Delivery
	for range ids {
		d, found, err := w.ch.Get(w.cfg.Queue, false)
		require.NoError(t, err)
		require.True(t, found)
		held = append(held, d)
	}
	var looks atomic.Int64 // of the visitor's at its clock, which stands still until it has met them
	var all atomic.Bool
	began := time.Now()
	clock := func() time.Time {
		if looks.Add(1) == stands {
			for _, d := range held {
				_ = d.Reject(true)
			}
		}
		if all.Load() {
			return time.Now()
		}
		return began
	}
	v, err := mirror.New(w.cfg, mirror.Deps{DB: w.tasks, Name: "visitor", Log: slog.New(slog.DiscardHandler), Clock: clock})
	require.NoError(t, err)
	met := map[string]bool{}
	require.NoError(t, v.Visit(t.Context(), mirror.Visit{Each: func(_ context.Context, copies []mirror.Copy) error {
		for _, c := range copies {
			met[c.Task.ID] = true
		}
		all.Store(len(met) == 3)
		return nil
	}}))
	require.Len(t, met, 3)
}

// Tasks that come all the time, each with a copy, do not hold a visitor up.
func TestAVisitEndsUnderLoad(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(3)
	w.start().knows(3)
	ctx, cancel := context.WithCancel(t.Context())
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		for tick := time.Tick(20 * time.Millisecond); ctx.Err() == nil; <-tick {
			w.submit(5)
		}
	}()
	met := w.visit(mirror.Visit{})
	cancel()
	<-loaded
	for _, id := range ids {
		require.Contains(t, met, id)
	}
}

// What goes wrong with a batch ends the round; no copy is lost.
func TestAVisitThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(60)
	m := w.start()
	m.knows(60)
	m.stop()
	v, err := mirror.New(w.cfg, mirror.Deps{DB: w.tasks, Name: "visitor", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	require.NoError(t, err)
	broken := errors.New("no Redis")
	require.ErrorIs(t, v.Visit(t.Context(), mirror.Visit{Each: func(context.Context, []mirror.Copy) error { return broken }}), broken)
	w.copies(60)
	require.Equal(t, once(ids), byTask(t, w.messages()))
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, v.Visit(ctx, mirror.Visit{Each: func(context.Context, []mirror.Copy) error { cancel(); return nil }}), context.Canceled)
	w.copies(60)
	w.cfg.URL = "amqp://guest:s3cr3t@127.0.0.1:1/"
	v, err = mirror.New(w.cfg, mirror.Deps{DB: w.tasks, Name: "visitor", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	require.NoError(t, err)
	err = v.Visit(t.Context(), mirror.Visit{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "s3cr3t")
}
