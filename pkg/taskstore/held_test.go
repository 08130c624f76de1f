package taskstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// heldBatch is a call that ends claims by their holder's copies; asked gets what Decide was asked about, once for each try.
func heldBatch(beats []taskstate.Beat, held []taskstate.Task, asked *[][]taskstate.Task) taskstate.Batch {
	b := taskstate.Batch{Scope: taskstate.System(), Held: held}
	tokens := map[string]taskstate.Token{}
	for _, beat := range beats {
		b.IDs = append(b.IDs, beat.TaskID)
		tokens[beat.TaskID] = beat.Token
	}
	end := taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Succeed(m, t, taskstate.Holder{Token: tokens[t.ID], Actor: worker}, nil, "")
	})
	b.Decide = func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
		*asked = append(*asked, tasks)
		return end(ctx, tx, m, tasks)
	}
	return b
}

// A holder ends its tasks without a look at their rows. Where one was changed under it, by whomever, nothing of that try is
// written: the rows are locked and read, and each gets what it would have got at first.
func TestAHolderEndsTasksByItsCopies(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				name   string
				change string // of task a, by somebody else
				tries  int
				status taskstate.Status // of a in the end
			}{
				{"none", "", 1, taskstate.StatusSucceeded},
				{"progress", "UPDATE ingest_task_state SET progress = 7", 1, taskstate.StatusSucceeded},
				{"cancelled", "UPDATE ingest_task_state SET status = 'CANCELLED'", 2, taskstate.StatusCancelled},
				{"taken over", "UPDATE ingest_task_state SET fence = fence + 1", 2, taskstate.StatusRunning},
				{"owner", "UPDATE ingest_task_state SET lease_owner = lease_owner + 1", 2, taskstate.StatusSucceeded},
				{"a later time", "UPDATE ingest_task_state SET updated_at = '2100-01-01 00:00:00.000000'", 2, taskstate.StatusSucceeded},
				{"gone", "DELETE FROM ingest_task_state", 2, ""},
			} {
				t.Run(c.name, func(t *testing.T) {
					s := migrated(t, config(t))
					beats := claimed(t, s, idA, idB)
					held, err := s.GetMany(t.Context(), taskstate.System(), []string{idA, idB})
					require.NoError(t, err)
					if c.change != "" {
						require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
							_, err := tx.ExecContext(ctx, c.change+" WHERE id = ?", sqldb.RawID(s.Dialect(), idA))
							return err
						}))
					}
					var asked [][]taskstate.Task
					outs, err := s.Apply(t.Context(), heldBatch(beats, held, &asked))
					require.NoError(t, err)
					require.Len(t, asked, c.tries)
					require.Equal(t, held, asked[0])
					require.Equal(t, taskstate.StatusSucceeded, outs[1].After.Status)
					if c.status == "" {
						require.Equal(t, taskstate.AnswerSkipped, outs[0].Answer)
						return
					}
					require.Equal(t, c.status == taskstate.StatusSucceeded, outs[0].Answer == taskstate.AnswerApplied)
					row, err := s.Get(t.Context(), taskstate.System(), idA)
					require.NoError(t, err)
					require.Equal(t, c.status, row.Status)
					log, err := s.Transitions(t.Context(), taskstate.System(), idB, 0, 10)
					require.NoError(t, err)
					require.Len(t, log, 3)
					require.Equal(t, outs[1].After.UpdatedAt, log[2].CreatedAt)
				})
			}
		})
	}
}

// A timeline that was renewed ends every claim, also for a holder that does not look at the rows.
func TestACopyOfAnOlderTimelineIsLost(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			beats := claimed(t, s, idA)
			held, err := s.GetMany(t.Context(), taskstate.System(), []string{idA})
			require.NoError(t, err)
			_, _, err = s.RenewEpoch(t.Context())
			require.NoError(t, err)
			var asked [][]taskstate.Task
			outs, err := s.Apply(t.Context(), heldBatch(beats, held, &asked))
			require.NoError(t, err)
			require.Equal(t, taskstate.AnswerLost, outs[0].Answer)
			row, err := s.Get(t.Context(), taskstate.System(), idA)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusRunning, row.Status)
		})
	}
}

// A holder that had to wait for a row's lock writes no time that is older than what the row said when it got the lock.
func TestAHolderThatWaitedForALockLooksAgain(t *testing.T) {
	t.Parallel()
	for name, config := range lockingDatabases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			s := migrated(t, cfg)
			beats := claimed(t, s, idA)
			held, err := s.GetMany(t.Context(), taskstate.System(), []string{idA})
			require.NoError(t, err)
			var asked [][]taskstate.Task
			b := heldBatch(beats, held, &asked)
			ended, began := make(chan error, 1), make(chan struct{})
			b.Decide = func(decide taskstate.DecideFunc) taskstate.DecideFunc {
				return func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
					if len(asked) == 0 {
						close(began) // its UPDATE waits for the lock that is held below, or comes after it
					}
					return decide(ctx, tx, m, tasks)
				}
			}(b.Decide)
			err = taskstate.WithClaim(t.Context(), s, idA, beats[0].Token, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
				go func() {
					_, err := s.Apply(t.Context(), b)
					ended <- err
				}()
				<-began
				_, err := tx.ExecContext(ctx, "UPDATE ingest_task_state SET updated_at = ? WHERE id = ?", time.Now().UTC().Add(time.Hour), sqldb.RawID(s.Dialect(), idA))
				return err
			})
			require.NoError(t, err)
			require.NoError(t, <-ended)
			require.Len(t, asked, 2)
			requireEnded(t, s, idA)
		})
	}
}

// requireEnded requires that a task succeeded, with three rows in its log.
func requireEnded(t *testing.T, s *taskstore.Store, id string) {
	t.Helper()
	row, err := s.Get(t.Context(), taskstate.System(), id)
	require.NoError(t, err)
	require.Equal(t, taskstate.StatusSucceeded, row.Status)
	log, err := s.Transitions(t.Context(), taskstate.System(), id, 0, 10)
	require.NoError(t, err)
	require.Len(t, log, 3)
	require.Equal(t, row.UpdatedAt, log[2].CreatedAt)
}
