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
	require.Eventually(t, func() bool { // not too often: InnoDB shows its copy of that table until nobody has read it for 100 ms
		var n int
		err := other.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'").Scan(&n)
		return err == nil && n > 0
	}, time.Minute, 200*time.Millisecond)
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
