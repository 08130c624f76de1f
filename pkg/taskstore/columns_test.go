package taskstore

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
)

// everyDatabase runs a test on each dialect.
func everyDatabase(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for kind, cfg := range map[string]Config{
		"sqlite":   {DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "columns.db")},
		"mariadb":  {MySQLDSN: labserver.MySQLDatabase(t)},
		"postgres": {DatabaseURL: labserver.PostgresDatabase(t)},
	} {
		t.Run(kind, func(t *testing.T) {
			s, err := Open(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			_, err = s.Migrate(t.Context())
			require.NoError(t, err)
			test(t, s)
		})
	}
}

func TestTheTableHasEachColumnOnce(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, s *Store) {
		body, state, view := []string{}, []string{"id"}, []string{"lease_expires_at"} // it is wake_at while somebody holds the task
		for _, c := range columns {
			if view = append(view, c.name); c.body() {
				body = append(body, c.name)
			} else {
				state = append(state, c.name)
			}
		}
		for table, want := range map[string][]string{"ingest_task_body": body, "ingest_task_state": state, "ingest_task": view} {
			require.ElementsMatch(t, want, columnsOf(t, s, table), table)
		}
	})
}

// columnsOf are the names of a table's columns.
func columnsOf(t *testing.T, s *Store, table string) []string {
	t.Helper()
	rows, err := s.Reader().QueryContext(t.Context(), "SELECT * FROM "+table)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	columns, err := rows.Columns()
	require.NoError(t, err)
	require.NoError(t, rows.Err())
	return columns
}

// All statements follow from the table: two more columns are written by Insert and Update and read back, with an entry each.
func TestAColumnIsOneEntry(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		typ := map[string]string{"sqlite": "TEXT", "mysql": "VARCHAR(190)", "postgres": "VARCHAR(190)"}[s.Dialect()]
		for _, ddl := range []string{"body ADD COLUMN room " + typ + " DEFAULT '' NOT NULL", "state ADD COLUMN brought " + typ} {
			_, err := s.DB().ExecContext(ctx, "ALTER TABLE ingest_task_"+ddl)
			require.NoError(t, err)
		}
		more := append(slices.Clone(columns),
			column{"room", text, made, func(t *task) any { return &t.ChatID }, nil},
			column{"brought", nullable, 0, func(t *task) any { return &t.Delivery }, func(c *change) any { return &c.Delivery }},
		)
		s = withColumns(s.Database, more)
		tables := s.queries.Get("Tasks")
		said := func(column, id string) (text string) {
			t.Helper()
			require.NoError(t, s.Reader().QueryRowContext(ctx, "SELECT COALESCE("+column+", 'NULL') FROM "+tables+" WHERE b.id = ?", id).Scan(&text))
			return text
		}

		made, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
			return []taskstate.NewTask{
				{Task: task{ID: idA, UserID: "u", Type: "x", Channel: "c", MaxAttempts: 3, ChatID: "left"}},
				{Task: task{ID: idB, UserID: "u", Type: "x", Channel: "c", MaxAttempts: 3, ChatID: "right"}},
			}, nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"left", "right", "NULL"}, []string{said("room", idA), said("room", idB), said("brought", idA)})

		actor := taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"}
		policy := taskstate.Policy{Lease: time.Minute, MaxCrashes: 3}
		outs, err := s.Apply(ctx, taskstate.Batch{IDs: []string{idA, idB}, Scope: taskstate.System(), Decide: taskstate.Each(
			func(m taskstate.DBClock, t task) taskstate.Decision {
				return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: "p/1", Process: "p", Actor: actor, Delivery: fmt.Sprint("1-", t.ID[35]-'a')})
			})})
		require.NoError(t, err)
		require.Equal(t, []string{"1-0", "1-1"}, []string{said("brought", idA), said("brought", idB)})
		for i, o := range outs {
			require.NoError(t, o.Err)
			require.Equal(t, made[i], o.Before)
			now, err := s.Get(ctx, taskstate.System(), o.TaskID)
			require.NoError(t, err)
			require.Equal(t, now, o.After)
		}

		_, err = s.DB().ExecContext(ctx, "UPDATE ingest_task_body SET room = 'moved' WHERE id = '"+idB+"'")
		require.NoError(t, err)
		_, err = s.DB().ExecContext(ctx, "UPDATE ingest_task_state SET brought = NULL WHERE fence = 1")
		require.NoError(t, err)
		now, err := s.Get(ctx, taskstate.System(), idB)
		require.NoError(t, err)
		require.Equal(t, []string{"moved", ""}, []string{now.ChatID, now.Delivery}, "the later column is read last")
	})
}

// Ids of tasks.
const (
	idA = "01900000-0000-7000-8000-00000000000a"
	idB = "01900000-0000-7000-8000-00000000000b"
)
