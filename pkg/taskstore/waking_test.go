package taskstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// calls are the calls that wake, by status: how many, and the tasks that they name.
func calls(t *testing.T, s *taskstore.Store) map[string][2]int64 {
	t.Helper()
	out := map[string][2]int64{}
	require.NoError(t, sqldb.Each(t.Context(), s.DB(), func(rows *sql.Rows) error {
		var status string
		var n, tasks int64
		err := rows.Scan(&status, &n, &tasks)
		out[status] = [2]int64{n, tasks}
		return err
	}, "SELECT to_status, COUNT(*), SUM(tasks) FROM ingest_task_call WHERE wake_at < '9999-12-31 00:00:00.000000' GROUP BY to_status"))
	return out
}

// submitted makes n tasks in one call.
func submitted(t *testing.T, s *taskstore.Store, n int) []string {
	t.Helper()
	tasks := make([]taskstate.NewTask, n)
	ids := make([]string, n)
	for i := range tasks {
		ids[i] = fmt.Sprintf("01900000-0000-7000-8000-%012d", i)
		tasks[i] = newTask(ids[i])
	}
	_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return tasks, nil })
	require.NoError(t, err)
	return ids
}

// A call wakes until none of its tasks does, and is counted once; whoever looks at the same time finds the same tasks.
func TestCallsWakeUntilTheirTasksDoNot(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := submitted(t, s, 40)
			counts := func() string {
				t.Helper()
				n, err := s.Counts(ctx, taskstate.System(), "")
				require.NoError(t, err)
				return fmt.Sprint(n)
			}
			require.Equal(t, "map[QUEUED:40]", counts())
			require.Equal(t, map[string][2]int64{"QUEUED": {1, 40}}, calls(t, s))

			out, err := s.Apply(ctx, taskstate.Batch{IDs: ids[:30], Scope: taskstate.System(), Decide: taskstate.Each(claim)})
			require.NoError(t, err)
			require.Len(t, out, 30)
			require.Equal(t, "map[QUEUED:10 RUNNING:30]", counts())
			due, _, err := s.Due(ctx, 100)
			require.NoError(t, err)
			require.Equal(t, int64(10), due)
			require.Equal(t, map[string][2]int64{"QUEUED": {1, 40}, "RUNNING": {1, 30}}, calls(t, s), "ten are still QUEUED")

			_, err = s.Apply(ctx, taskstate.Batch{IDs: ids[30:], Scope: taskstate.System(), Decide: taskstate.Each(claim)})
			require.NoError(t, err)
			_, err = s.Apply(ctx, taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Succeed(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, nil, "done")
			})})
			require.NoError(t, err)
			require.Equal(t, "map[SUCCEEDED:40]", counts())
			require.Equal(t, map[string][2]int64{"QUEUED": {1, 40}, "RUNNING": {2, 40}, "SUCCEEDED": {1, 40}}, calls(t, s))
			_, _, err = s.Due(ctx, 100)
			require.NoError(t, err)
			require.Equal(t, map[string][2]int64{"RUNNING": {2, 40}}, calls(t, s), "a lease is looked at when it ends")
			require.Equal(t, "map[SUCCEEDED:40]", counts())
			err = s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
				_, err := tx.ExecContext(ctx, "UPDATE ingest_task_call SET wake_at = ? WHERE to_status = 'RUNNING'", m.Now.Add(-time.Minute))
				return err
			})
			require.NoError(t, err)
			next, err := s.NextWake(ctx, taskstate.StatusRunning, time.Hour)
			require.NoError(t, err)
			require.Equal(t, time.Hour, next)
			require.Empty(t, calls(t, s))
			require.Equal(t, "map[SUCCEEDED:40]", counts())
		})
	}
}

// A call that somebody else has locked is left to them: nobody waits for it, and it is counted once.
func TestALockedCallIsLeftToWhomeverHasIt(t *testing.T) {
	t.Parallel()
	for name, config := range lockingDatabases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := submitted(t, s, 3)
			_, err := s.Apply(ctx, taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(
				func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Cancel(m, t, worker, taskstate.ReasonCancelled, "")
				})})
			require.NoError(t, err)
			require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
				if _, err := tx.ExecContext(ctx, "UPDATE ingest_task_call SET actor = 'system:test'"); err != nil {
					return err
				}
				due, _, err := s.Due(t.Context(), 10)
				require.NoError(t, err)
				require.Zero(t, due)
				return nil
			}))
			require.Equal(t, map[string][2]int64{"QUEUED": {1, 3}, "CANCELLED": {1, 3}}, calls(t, s))
			_, _, err = s.Due(ctx, 10)
			require.NoError(t, err)
			require.Empty(t, calls(t, s))
			n, err := s.Counts(ctx, taskstate.System(), "")
			require.NoError(t, err)
			require.Equal(t, map[taskstate.Status]int64{taskstate.StatusCancelled: 3}, n)
		})
	}
}

// A call that is ended for what was read is not missed by a change that commits meanwhile: that has a call of its own.
func TestAChangeBesideALookHasItsOwnCall(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		if name == "sqlite" {
			continue // a look there is no transaction beside another
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := submitted(t, s, 1)
			_, err := s.Apply(ctx, taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
			require.NoError(t, err)
			// Handed back in a transaction that has written and not committed while the look reads RUNNING and ends the first call of QUEUED.
			handBack := taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.HandBack(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, "")
			})
			_, err = s.Apply(ctx, taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: handBack,
				OnTransition: func(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Decision) error {
					_, _, err := s.Due(t.Context(), 10)
					return err
				}})
			require.NoError(t, err)
			require.Equal(t, map[string][2]int64{"QUEUED": {1, 1}, "RUNNING": {1, 1}}, calls(t, s))
			out, err := s.Sweep(ctx, taskstate.Sweep{Status: taskstate.StatusQueued, Limit: 5, WakeBefore: taskstate.In(time.Minute), Decide: taskstate.Each(claim)})
			require.NoError(t, err)
			require.Len(t, out, 1)
			require.Equal(t, ids[0], out[0].TaskID)
		})
	}
}

// A sweep takes the tasks that slept longest, also where more calls than a page say a time before theirs.
func TestASweepTakesThoseThatSleptLongest(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			const n = 12
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("01900000-0000-7000-8000-%012d", i)
				_, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
					return []taskstate.NewTask{newTask(ids[i])}, nil
				})
				require.NoError(t, err)
			}
			require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
				past := m.Now.Add(-time.Hour)
				if _, err := tx.ExecContext(ctx, "UPDATE ingest_task_call SET wake_at = ?", past); err != nil {
					return err
				}
				for i, id := range ids {
					_, err := tx.ExecContext(ctx, "UPDATE ingest_task_state SET wake_at = ? WHERE id = ?", past.Add(time.Duration(n-i)*time.Minute), sqldb.RawID(s.Dialect(), id))
					if err != nil {
						return err
					}
				}
				return nil
			}))
			for i := n; i > 0; i -= 3 {
				out, err := s.Sweep(ctx, taskstate.Sweep{Status: taskstate.StatusQueued, Limit: 3, Decide: taskstate.Each(claim)})
				require.NoError(t, err)
				swept := make([]string, len(out))
				for j, o := range out {
					swept[j] = o.TaskID
				}
				require.Equal(t, []string{ids[i-1], ids[i-2], ids[i-3]}, swept)
			}
		})
	}
}
