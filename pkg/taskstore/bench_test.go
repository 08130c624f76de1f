package taskstore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// BenchmarkLife takes batches of tasks through accept, claim and success with their log; it reports tasks a second,
// and on MariaDB the bytes of redo a task.
func BenchmarkLife(b *testing.B) {
	for name, config := range map[string]func(b *testing.B) taskstore.Config{
		"sqlite": func(b *testing.B) taskstore.Config {
			return taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(b.TempDir(), "t.db")}
		},
		"mysql": func(b *testing.B) taskstore.Config { return taskstore.Config{MySQLDSN: labserver.MySQLDatabase(b)} },
		"postgres": func(b *testing.B) taskstore.Config {
			return taskstore.Config{DatabaseURL: labserver.PostgresDatabase(b)}
		},
	} {
		for _, size := range []int{1, 20, 100, 500} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) { life(b, config(b), size) })
		}
	}
}

// life is one size of batch on one database.
func life(b *testing.B, cfg taskstore.Config, size int) {
	b.Helper()
	s, err := taskstore.Open(b.Context(), cfg)
	require.NoError(b, err)
	defer s.Close() //nolint:errcheck // a benchmark's store
	_, err = s.Migrate(b.Context())
	require.NoError(b, err)
	finish := func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Succeed(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, nil, "")
	}
	redo := redoWritten(b, s)
	n := 0
	for b.Loop() {
		ids, tasks := make([]string, size), make([]taskstate.NewTask, size)
		for i := range tasks {
			ids[i] = fmt.Sprintf("0190a6e0-0000-7000-8000-%012d", n)
			tasks[i] = newTask(ids[i])
			n++
		}
		_, err := s.Submit(b.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return tasks, nil })
		require.NoError(b, err)
		for _, decide := range []func(taskstate.DBClock, taskstate.Task) taskstate.Decision{claim, finish} {
			out, err := s.Apply(b.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(decide)})
			require.NoError(b, err)
			require.NotNil(b, out[size-1].Change)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tasks/s")
	if after := redoWritten(b, s); after > redo {
		b.ReportMetric(float64(after-redo)/float64(n), "redo-B/task")
	}
}

// redoWritten is MariaDB's count of redo bytes; 0 elsewhere.
func redoWritten(b *testing.B, s *taskstore.Store) (bytes int64) {
	b.Helper()
	if s.Dialect() == "mysql" {
		var name string
		require.NoError(b, s.DB().QueryRowContext(b.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'").Scan(&name, &bytes))
	}
	return bytes
}
