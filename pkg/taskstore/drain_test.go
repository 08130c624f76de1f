package taskstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// A process says with each renewal how many slots it has; a claim that has to renew the lease first leaves the number as it is.
func TestSlotsOfAProcess(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			ids := submitted(t, s, 2)
			slots := func() int {
				all, err := s.Workers(t.Context(), time.Hour, 10)
				require.NoError(t, err)
				require.Len(t, all, 1)
				return all[0].Slots
			}
			require.NoError(t, claimedBy(t, s, "p/1", nil, ids[0])[0].Err)
			require.Equal(t, -1, slots(), "it has a row since its first claim")
			for _, n := range []int{64, 0, 1024} {
				require.NoError(t, s.Renew(t.Context(), "p", policy.Lease/4, n))
				require.Equal(t, n, slots())
			}
			require.NoError(t, claimedBy(t, s, "p/2", nil, ids[1])[0].Err, "for which too little of its lease is left")
			require.Equal(t, 1024, slots())
		})
	}
}

// What an operator wants of a process stands in the row of its start, and goes with it.
func TestDrainOfAProcess(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t)
			s := migrated(t, c)
			drains := func(s *taskstore.Store) bool {
				yes, err := s.Drains(t.Context(), "p")
				require.NoError(t, err)
				return yes
			}
			row := func() taskstate.Worker {
				all, err := s.Workers(t.Context(), time.Hour, 10)
				require.NoError(t, err)
				require.NotEmpty(t, all)
				return all[0]
			}
			require.False(t, drains(s), "it has no row yet")
			for _, unknown := range []string{"p", "é", "🐳", "a\u202eb", ""} { // names are ASCII, with which MySQL compares no other text
				require.ErrorIs(t, s.Drain(t.Context(), unknown, false, time.Hour, nil), taskstate.ErrNotFound)
			}
			require.NoError(t, s.Renew(t.Context(), "p", policy.Lease, 8))
			require.False(t, drains(s))
			require.NoError(t, s.Drained(t.Context(), "p"))
			require.Zero(t, row().DrainedAt, "nobody asked")

			require.NoError(t, s.Drain(t.Context(), "p", false, time.Hour, nil))
			asked := row().DrainAt
			require.NotZero(t, asked)
			require.NoError(t, s.Drain(t.Context(), "p", false, time.Hour, nil))
			require.Equal(t, asked, row().DrainAt, "done twice is as done once")
			require.True(t, drains(s))
			require.Zero(t, row().DrainedAt)
			require.NoError(t, s.Drained(t.Context(), "p"))
			require.NotZero(t, row().DrainedAt)
			require.NoError(t, s.Renew(t.Context(), "p", policy.Lease, 8))
			require.True(t, drains(s), "a heartbeat keeps it")
			require.NoError(t, s.Drain(t.Context(), "p", true, time.Hour, nil))
			require.False(t, drains(s))
			require.Zero(t, row().DrainAt)
			require.Zero(t, row().DrainedAt)

			require.NoError(t, s.Drain(t.Context(), "p", false, time.Hour, nil))
			next := open(t, c)
			require.NoError(t, next.Renew(t.Context(), "p", policy.Lease, 8))
			require.False(t, drains(next), "a new start drains nothing")
			refused := errors.New("the note cannot be written")
			note := func(context.Context, taskstate.Tx, taskstate.DBClock) error { return refused }
			require.ErrorIs(t, next.Drain(t.Context(), "p", false, time.Hour, note), refused)
			require.False(t, drains(next), "nothing is asked without its note")
			require.ErrorIs(t, s.Drain(t.Context(), "p' OR 1=1 --", false, time.Hour, nil), taskstate.ErrNotFound)
		})
	}
}
