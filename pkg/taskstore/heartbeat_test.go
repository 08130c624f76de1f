package taskstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// claimed submits and claims tasks and returns the beats that ask about them.
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
			TaskID: o.TaskID, Status: taskstate.StatusRunning, Owner: o.After.LeaseOwner,
			Token: taskstate.Token{Fence: o.After.Fence, Epoch: m.Epoch},
		}
	}
	return beats
}

// A run's transaction that waits holds up no lease, and hides from no other run that its claim is lost.
func TestALockedRowHoldsUpNoLease(t *testing.T) {
	t.Parallel()
	for name, config := range lockingDatabases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			beats := claimed(t, s, idA, idB, idC)
			for i := range beats {
				beats[i].Progress = &taskstate.Progress{Stage: taskstate.StageRun, Percent: 7}
			}
			beats[2].Token.Fence++
			err := taskstate.WithClaim(t.Context(), s, idB, beats[1].Token, func(context.Context, taskstate.Tx, taskstate.DBClock) error {
				require.NoError(t, s.Renew(t.Context(), "p", time.Hour, 8))
				for _, id := range []string{idA, idB, idC} {
					task, err := s.Get(t.Context(), taskstate.System(), id)
					require.NoError(t, err)
					require.Greater(t, task.LeaseExpiresAt().Sub(task.CreatedAt), 30*time.Minute)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tries := 0
				s.Watch(func(query string, done bool) error {
					if !done && strings.HasPrefix(query, "UPDATE") {
						if tries++; tries == 2 { // the first has waited for the lock
							cancel()
						}
					}
					return nil
				})
				lost, err := s.Heartbeat(ctx, time.Hour, beats)
				s.Watch(nil)
				require.Error(t, err, "one could not be written")
				require.Equal(t, 2, tries)
				require.Equal(t, []string{idC}, lost)
				return nil
			})
			require.NoError(t, err)
			lost, err := s.Heartbeat(t.Context(), time.Hour, beats)
			require.NoError(t, err)
			require.Equal(t, []string{idC}, lost)
			task, err := s.Get(t.Context(), taskstate.System(), idB)
			require.NoError(t, err)
			require.Equal(t, 7, task.Progress.Percent)
		})
	}
}

// Runs that hold every connection, and wait, do not hold up the heartbeats.
func TestHeartbeatsHaveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
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
