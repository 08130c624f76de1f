package mirror

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	pb "github.com/millweir/millweir/proto"
)

// Until the first round of a connection is over only a task that is at least 5 s younger than it is missing: a row that was made again
// from a copy is old, as its id says.
func TestBeforeTheFirstRoundOnlyYoungTasksAreMissing(t *testing.T) {
	t.Parallel()
	connected := time.Now()
	m := &Mirror{cfg: Config{QueueMaxLength: 3}}
	p := newPublisher(&session{Mirror: m, connected: connected, known: newKnown(), wake: make(chan struct{}, 1)})
	restored, recent, young := firstID(connected.Add(-time.Hour)), firstID(connected.Add(younger-time.Millisecond)), firstID(connected.Add(younger+time.Millisecond))
	for _, id := range []uuid.UUID{restored, recent, young} {
		p.judge(state{id: id, status: taskstate.StatusQueued})
	}
	require.Len(t, p.missing, 1)
	require.Contains(t, p.missing, young)
	p.known.begin()
	p.known.end(true)
	for _, id := range []uuid.UUID{restored, recent, young} {
		p.judge(state{id: id, status: taskstate.StatusSuspended})
	}
	require.Len(t, p.missing, 3)
	p.judge(state{id: uuid.Must(uuid.NewV7()), status: taskstate.StatusQueued})
	require.Len(t, p.missing, 3, "no more than fit into the queue are remembered")
	p.known.add(restored)
	p.judge(state{id: restored, status: taskstate.StatusRunning})
	p.judge(state{id: recent, status: taskstate.StatusDead})
	require.Len(t, p.missing, 1)
	require.Empty(t, p.wake, "what has ended without a copy asks for no round")
	p.judge(state{id: restored, status: taskstate.StatusSucceeded})
	require.Len(t, p.wake, 1)
}

// Whoever removes the row of a task without a copy asks for a try at once; a row that is there waits for its turn.
func TestARemovedFailureIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	store := taskstoretest.Open(t)
	removed, kept := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	_, err := store.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{{Task: taskstate.Task{ID: kept.String(), UserID: "anna", Type: "document", Channel: "http", MaxAttempts: 3}}}, nil
	})
	require.NoError(t, err)
	m := &Mirror{d: Deps{DB: store, Clock: time.Now}, rows: newRows(store)}
	p := newPublisher(&session{Mirror: m, known: newKnown()})
	p.known.end(true)
	later := time.Now().Add(time.Hour)
	for _, id := range []uuid.UUID{removed, kept} {
		p.missing[id], p.failing[id] = &missed{next: later}, true
	}
	require.NoError(t, p.rows.putFailures(t.Context(), []failure{{kept, "no confirm", 3}}))
	require.NoError(t, p.tidy(t.Context()))
	require.Zero(t, p.missing[removed].next)
	require.Equal(t, later, p.missing[kept].next)
	require.Equal(t, map[uuid.UUID]bool{kept: true}, p.failing)
}

// A round forgets what it did not meet, and nothing else.
func TestARoundForgetsWhatItDidNotMeet(t *testing.T) {
	t.Parallel()
	k := newKnown()
	a, b, c := uuid.New(), uuid.New(), uuid.New()
	k.begin()
	k.add(a)
	k.add(b)
	require.False(t, k.complete())
	k.end(true)
	require.True(t, k.complete())
	k.begin()
	k.met(taken{id: b, envelope: &pb.TaskEnvelope{}}, "2")
	k.add(c) // published meanwhile
	require.True(t, k.has(a), "a round that goes on has not yet missed it")
	k.end(false)
	require.True(t, k.has(a), "somebody else may hold it")
	k.end(true)
	require.ElementsMatch(t, []uuid.UUID{b, c}, k.all())
	for range heldRounds {
		k.begin()
		k.end(false)
		require.True(t, k.has(b))
	}
	k.begin()
	k.end(false)
	require.Empty(t, k.all(), "nobody holds a copy for so long: a queue that was purged beside a consumer is filled again")
}

// What a round leaves beyond one copy a task is no reason for another: second copies, and what is no copy of a task. A task that has ended
// is forgotten with all its copies, so that those that were met before are one.
func TestEachCopyOfARoundCountsOnce(t *testing.T) {
	t.Parallel()
	k := newKnown()
	one, nobodys := taken{id: uuid.New(), envelope: &pb.TaskEnvelope{}}, taken{}
	k.add(uuid.New()) // before the round
	k.begin()
	for _, c := range []taken{one, one, nobodys, nobodys} {
		k.met(c, "1")
	}
	require.Equal(t, 5, k.copies())
	one.CorrelationId, nobodys.CorrelationId = "1", "1"
	k.met(one, "1")
	k.met(nobodys, "1")
	require.Equal(t, 5, k.copies(), "they went to the tail in this round")
	k.end(true)
	require.Equal(t, 4, k.copies())
	k.remove(one.id)
	require.Equal(t, 2, k.copies())
	k.begin()
	require.Zero(t, k.copies())
}

func TestIdsSayWhenTheyWereMade(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_790_000_000_123)
	require.Equal(t, at, madeAt(firstID(at)))
	require.WithinDuration(t, time.Now(), madeAt(uuid.Must(uuid.NewV7())), time.Minute)
	for text, ok := range map[string]bool{
		"0190a6e0-0000-7000-8000-000000000001": true, "0190A6E0-0000-7000-8000-000000000001": false, "{0190a6e0-0000-7000-8000-000000000001}": false, "": false,
	} {
		_, got := parseID(text)
		require.Equal(t, ok, got, text)
	}
}
