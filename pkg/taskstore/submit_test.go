package taskstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
)

// TestSubmitOfManyIsOneTransaction takes more tasks at once than one statement does, in another order than their ids',
// and compares the tasks that it returns with the rows.
func TestSubmitOfManyIsOneTransaction(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			tasks := make([]taskstate.NewTask, 1100)
			ids := make([]string, len(tasks))
			for i := range tasks {
				ids[i] = fmt.Sprintf("01900000-0000-7000-8000-%012d", (i*7)%len(tasks))
				tasks[i] = newTask(ids[i])
			}
			count := 0
			s.Watch(func(_ string, done bool) error {
				if !done {
					count++
				}
				return nil
			})
			out, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
				return tasks, nil
			})
			require.NoError(t, err)
			want := map[string]int{"sqlite": 15, "postgres": 9, "mysql": 14}[name] // on MySQL a transaction begins by itself
			require.Equal(t, want, count, "BEGIN, moment, 3 × bodies, states, calls, logs (Postgres: two of them at once), COMMIT: about 0.01 a task")
			require.Len(t, out, len(ids))
			got, err := s.GetMany(t.Context(), taskstate.System(), ids)
			require.NoError(t, err)
			require.Len(t, got, len(ids))
			for _, row := range got {
				at := slices.Index(ids, row.ID)
				require.Equal(t, row, out[at], "in the caller's order, as written")
			}
		})
	}
}
