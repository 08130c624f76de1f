package taskstore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A holder from before a restore is believed no more, even when the restored row repeats its fence.
func TestRenewedEpochEndsEveryClaim(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
				return []taskstate.NewTask{newTask(idA), newTask(idB)}, nil
			})
			require.NoError(t, err)
			out, err := s.Apply(t.Context(), taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
			require.NoError(t, err)
			before, err := s.Moment(t.Context())
			require.NoError(t, err)
			old := taskstate.Token{Epoch: before.Epoch, Fence: out[0].After.Fence}

			epoch, leases, err := s.RenewEpoch(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, leases)
			require.NotEqual(t, before.Epoch, epoch)

			lost, err := s.Heartbeat(t.Context(), policy.Lease, []taskstate.Beat{{
				TaskID: idA, Status: taskstate.StatusRunning, Token: old, Owner: out[0].After.LeaseOwner, Renew: true,
			}})
			require.NoError(t, err)
			require.Equal(t, []string{idA}, lost)
			require.ErrorIs(t, taskstate.WithClaim(t.Context(), s, idA, old, func(context.Context, taskstate.Tx, taskstate.DBClock) error { return nil }), taskstate.ErrLost)
			finish := taskstate.Each(func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
				return taskstate.Succeed(m, task, taskstate.Holder{Token: old}, nil, "")
			})
			out, err = s.Apply(t.Context(), taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: finish})
			require.NoError(t, err)
			require.Equal(t, taskstate.AnswerLost, out[0].Answer)

			out, err = s.Sweep(t.Context(), taskstate.Sweep{Status: taskstate.StatusRunning, WakeBefore: taskstate.In(0), Limit: 10, Decide: taskstate.Each(
				func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
					return taskstate.Claim(policy, m, task, taskstate.ClaimRequest{Owner: "new/1", Process: "new", Takeover: true})
				})})
			require.NoError(t, err)
			require.Len(t, out, 1)
			require.Equal(t, taskstate.AnswerClaimed, out[0].Answer, "whoever sweeps next takes it over")
		})
	}
}
