package taskstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// claimed submits and claims tasks and returns the beats that renew their leases.
func claimed(t *testing.T, s *taskstore.Store, ids ...string) []taskstate.Beat {
	t.Helper()
	_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) (out []taskstate.NewTask, err error) {
		for _, id := range ids {
			out = append(out, newTask(id))
		}
		return out, nil
	})
	require.NoError(t, err)
	out, err := s.Apply(t.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
	require.NoError(t, err)
	m, err := s.Moment(t.Context())
	require.NoError(t, err)
	beats := make([]taskstate.Beat, len(out))
	for i, o := range out {
		beats[i] = taskstate.Beat{
			TaskID: o.TaskID, Status: taskstate.StatusRunning, Owner: o.After.LeaseOwner, Renew: true,
			Token: taskstate.Token{Fence: o.After.Fence, Epoch: m.Epoch},
		}
	}
	return beats
}

// One run's transaction that waits must cost no other run its lease: one locked row is no reason to renew none.
func TestALockedRowHoldsUpNoOtherHeartbeat(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		if name == "sqlite" {
			continue // no locks of rows
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			beats := claimed(t, s, idA, idB, idC)
			err := taskstate.WithClaim(t.Context(), s, idB, beats[1].Token, func(context.Context, taskstate.Tx, taskstate.DBClock) error {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, err := s.Heartbeat(ctx, time.Hour, beats)
					ended <- err
				}()
				renewed := func(id string) bool {
					task, err := s.Get(t.Context(), taskstate.System(), id)
					require.NoError(t, err)
					return task.LeaseExpiresAt().Sub(task.CreatedAt) > 30*time.Minute
				}
				require.Eventually(t, func() bool { return renewed(idA) && renewed(idC) }, time.Minute, 20*time.Millisecond, "the others are renewed")
				require.False(t, renewed(idB))
				cancel()
				require.Error(t, <-ended, "one could not be renewed")
				return nil
			})
			require.NoError(t, err)
		})
	}
}

// Runs that hold every connection, and wait, do not hold up the heartbeats.
func TestHeartbeatsHaveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		if name == "sqlite" {
			continue // one writer, whatever asks
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			migrated(t, cfg)
			cfg.MaxOpen = 1
			s := open(t, cfg)
			beats := claimed(t, s, idA)
			require.NoError(t, s.InTx(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				lost, err := s.Heartbeat(ctx, time.Hour, beats)
				require.Empty(t, lost)
				return err
			}))
		})
	}
}
