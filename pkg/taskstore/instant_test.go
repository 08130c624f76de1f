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

// On MySQL a batch takes the time of its locking statement. One that had to wait for a lock began before the change that it
// waited for: a task's times must not go back.
func TestTimesOfATaskNeverGoBack(t *testing.T) {
	t.Parallel()
	s := migrated(t, taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t)})
	_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{newTask(idA)}, nil
	})
	require.NoError(t, err)
	other, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer other.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	_, err = other.ExecContext(t.Context(), "UPDATE ingest_task_state SET progress = 1 WHERE id = ?", sqldb.RawID(s.Dialect(), idA))
	require.NoError(t, err)

	claimed := make(chan taskstate.Outcome, 1)
	go func() {
		out, err := s.Apply(t.Context(), taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
		if err == nil {
			claimed <- out[0]
		}
		close(claimed)
	}()
	requireLockWait(t, s)
	_, err = other.ExecContext(t.Context(), "UPDATE ingest_task_state SET updated_at = NOW(6) WHERE id = ?", sqldb.RawID(s.Dialect(), idA))
	require.NoError(t, err)
	var before taskstate.DBTime
	require.NoError(t, other.QueryRowContext(t.Context(), "SELECT updated_at FROM ingest_task WHERE id = '"+idA+"'").Scan(&before))
	require.NoError(t, other.Commit())

	o, ok := <-claimed
	require.True(t, ok)
	require.True(t, o.After.UpdatedAt.After(before.Time), "%s is not after %s", o.After.UpdatedAt, before.Time)
	now, err := s.Get(t.Context(), taskstate.System(), idA)
	require.NoError(t, err)
	require.Equal(t, now.UpdatedAt, o.After.UpdatedAt)
	log, err := s.Transitions(t.Context(), taskstate.System(), idA, 0, 10)
	require.NoError(t, err)
	require.Equal(t, now.UpdatedAt, log[1].CreatedAt)
}

// requireLockWait waits until a session waits for a lock of a row.
func requireLockWait(t *testing.T, s *taskstore.Store) {
	t.Helper()
	// Not too often: InnoDB shows its copy of that table until nobody has read it for 100 ms.
	query, every := "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'", 200*time.Millisecond
	if s.Dialect() == string(sqldb.Postgres) {
		query, every = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'", 10*time.Millisecond
	}
	require.Eventually(t, func() bool {
		var n int
		return s.Reader().QueryRowContext(t.Context(), query).Scan(&n) == nil && n > 0
	}, time.Minute, every)
}

// A call that waited for a task's lock decides about all that the task says since: also what its body says, which is not locked.
// A cancellation that waits while a run fails takes the task off the failures again.
func TestABatchThatWaitedSeesAllOfATask(t *testing.T) {
	t.Parallel()
	for name, config := range lockingDatabases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			s, other := migrated(t, cfg), open(t, cfg)
			beats := claimed(t, s, idA)
			var seen []taskstate.Task
			cancelled := make(chan error, 1)
			cancel := taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				seen = append(seen, t)
				return taskstate.Cancel(m, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"}, taskstate.ReasonCancelled, "")
			})}
			outs, err := s.Apply(t.Context(), taskstate.Batch{
				IDs: []string{idA}, Scope: taskstate.System(),
				Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Fail(policy, m, t, taskstate.Holder{Token: beats[0].Token, Actor: worker}, taskstate.Failure{Code: "BROKEN", Cause: "it broke"})
				}),
				OnTransition: func(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Decision) error {
					go func() {
						_, err := other.Apply(t.Context(), cancel)
						cancelled <- err
					}()
					requireLockWait(t, s)
					return nil
				},
			})
			require.NoError(t, err)
			require.NoError(t, outs[0].Err)
			require.NoError(t, <-cancelled)
			last := seen[len(seen)-1]
			require.Equal(t, []any{taskstate.StatusRetrying, "BROKEN", "it broke"}, []any{last.Status, last.ErrorCode, last.LastError})
			row, err := s.Get(t.Context(), taskstate.System(), idA)
			require.NoError(t, err)
			require.Equal(t, []any{taskstate.StatusCancelled, "it broke"}, []any{row.Status, row.LastError})
			require.Equal(t, "0", read(t, s, "SELECT COUNT(*) FROM task_failure"))
		})
	}
}
