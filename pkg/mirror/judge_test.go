package mirror

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Until the first round of a connection is over only a task that is at least 5 s younger than it is missing: a row that was made again
// from a copy is old, as its id says.
func TestBeforeTheFirstRoundOnlyYoungTasksAreMissing(t *testing.T) {
	t.Parallel()
	connected := time.Now()
	p := newPublisher(&session{connected: connected, known: newKnown(), wake: make(chan struct{}, 1)})
	restored, recent, young := firstID(connected.Add(-time.Hour)), firstID(connected.Add(younger-time.Millisecond)), firstID(connected.Add(younger+time.Millisecond))
	for _, id := range []uuid.UUID{restored, recent, young} {
		p.judge(state{id: id, status: taskstate.StatusQueued})
	}
	require.Len(t, p.missing, 1)
	require.Contains(t, p.missing, young)
	p.known.begin()
	p.known.end()
	for _, id := range []uuid.UUID{restored, recent, young} {
		p.judge(state{id: id, status: taskstate.StatusSuspended})
	}
	require.Len(t, p.missing, 3)
	p.known.add(restored)
	p.judge(state{id: restored, status: taskstate.StatusRunning})
	p.judge(state{id: recent, status: taskstate.StatusDead})
	require.Len(t, p.missing, 1)
	require.Empty(t, p.wake, "what has ended without a copy asks for no round")
	p.judge(state{id: restored, status: taskstate.StatusSucceeded})
	require.Len(t, p.wake, 1)
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
	k.end()
	require.True(t, k.complete())
	k.begin()
	k.add(b) // met
	k.add(c) // published meanwhile
	require.True(t, k.has(a), "a round that goes on has not yet missed it")
	k.end()
	require.ElementsMatch(t, []uuid.UUID{b, c}, k.all())
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
