package taskstore_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

func TestConfigNamesItsProblems(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg  taskstore.Config
		want string // "": fine
	}{
		"nothing":            {taskstore.Config{}, "MYSQL_DSN or DATABASE_URL"},
		"both":               {taskstore.Config{MySQLDSN: "u@tcp(h)/d", DatabaseURL: "sqlite:x"}, "only one"},
		"dsn":                {taskstore.Config{MySQLDSN: "u:p@tcp(h:3306)/d?timeout=3s"}, ""},
		"dsn, no database":   {taskstore.Config{MySQLDSN: "u:p@tcp(h:3306)/"}, "MYSQL_DSN: names no database"},
		"dsn, broken":        {taskstore.Config{MySQLDSN: "u:secret@tcp(h:3306"}, "MYSQL_DSN: not a DSN"},
		"mysql url":          {taskstore.Config{DatabaseURL: "mysql://u:p%40ss@h/d"}, ""},
		"mysql url, no db":   {taskstore.Config{DatabaseURL: "mysql://u:p@h:3306"}, "names no database"},
		"mysql url, no host": {taskstore.Config{DatabaseURL: "mysql:///d"}, "not a URL"},
		"postgres":           {taskstore.Config{DatabaseURL: "postgres://u:p@h:5432/d?sslmode=disable"}, ""},
		"postgres, broken":   {taskstore.Config{DatabaseURL: "postgres://u:p@h:port/d"}, "DATABASE_URL: not a URL"},
		"sqlite":             {taskstore.Config{DatabaseURL: "sqlite:./data/tasks.db"}, ""},
		"sqlite, no path":    {taskstore.Config{DatabaseURL: "sqlite:"}, "sqlite:PATH"},
		"another database":   {taskstore.Config{DatabaseURL: "oracle://h/d"}, "DATABASE_URL: want mysql://"},
		"negative":           {taskstore.Config{DatabaseURL: "sqlite:x", MaxOpen: -1, Timeout: -1}, "negative"},
	} {
		err := tt.cfg.Validate()
		if tt.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, tt.want, name)
		require.NotContains(t, err.Error(), "secret", name)
		_, err = taskstore.Open(t.Context(), tt.cfg)
		require.ErrorContains(t, err, tt.want, name)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, url := range map[string]string{
		"no folder":    "sqlite:" + filepath.Join(dir, "missing", "tasks.db"),
		"a folder":     "sqlite:" + dir,
		"memory":       "sqlite::memory:",
		"no mysql":     "mysql://root:topsecret@127.0.0.1:1/d",
		"no postgres":  "postgres://postgres:topsecret@127.0.0.1:1/d",
		"unknown host": "mysql://root:topsecret@no-such-host.invalid/d",
	} {
		s, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: url})
		if s != nil { // a server is asked at the first statement only (design D16)
			err = s.Ping(t.Context())
			require.NoError(t, s.Close())
		}
		require.ErrorIs(t, err, taskstate.ErrUnavailable, name)
		require.NotContains(t, err.Error(), "topsecret", name)
	}
}

func TestOddPathsOfSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c#d%20ü.db")
	s := migrated(t, taskstore.Config{DatabaseURL: "sqlite:" + path})
	require.NoError(t, s.Ping(t.Context()))
	require.FileExists(t, path)
}

func TestSQLiteClock(t *testing.T) {
	t.Parallel()
	clock := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
	cfg := taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "t.db"), Now: func() time.Time {
		clock = clock.Add(time.Microsecond)
		return clock
	}}
	s := migrated(t, cfg)
	out, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{newTask(idA), newTask(idB)}, nil
	})
	require.NoError(t, err)
	require.Equal(t, 2030, out[0].CreatedAt.Year())
	for _, task := range out {
		require.Equal(t, out[0].CreatedAt, task.UpdatedAt, "one statement is one instant")
		require.Equal(t, out[0].CreatedAt, task.EnqueuedAt)
	}
	var sum string
	var diff int64
	row := s.Reader().QueryRowContext(t.Context(), "SELECT mw_add('2030-01-01 00:00:00.000000', ?), mw_diff(?, '2030-01-01 00:00:00.000000')", int64(1_500_000), clock)
	require.NoError(t, row.Scan(&sum, &diff))
	require.Equal(t, "2030-01-01 00:00:01.500000", sum)
	require.Positive(t, diff)
	_, err = s.DB().PrepareContext(t.Context(), "SELECT mw_now()") //nolint:sqlclosecheck // there is none
	require.ErrorContains(t, err, "cannot be prepared", "it would have the time at which it was made")
}

// TestServerGoneAndBack kills the server under a store, which must say so, do nothing, and go on when it is back.
func TestServerGoneAndBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []labserver.Kind{labserver.KindMariaDB, labserver.KindPostgres} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := labserver.Private(t, kind, labserver.Options{})
			create := map[labserver.Kind]string{labserver.KindMariaDB: "", labserver.KindPostgres: "postgres"}[kind]
			require.NoError(t, server.SQL(t.Context(), create, "CREATE DATABASE gone"))
			cfg := taskstore.Config{DatabaseURL: server.URL("gone"), MaxOpen: 3}
			if kind == labserver.KindMariaDB {
				cfg = taskstore.Config{MySQLDSN: server.DSN("gone"), MaxOpen: 3}
			}
			s, ctx := migrated(t, cfg), t.Context()
			submit := func(id string) error {
				_, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
					return []taskstate.NewTask{newTask(id)}, nil
				})
				return err
			}
			require.NoError(t, submit(idA))
			require.NoError(t, server.Kill(ctx))
			require.ErrorIs(t, submit(idB), taskstate.ErrUnavailable)
			_, err := s.Get(ctx, taskstate.System(), idA)
			require.ErrorIs(t, err, taskstate.ErrUnavailable)
			_, err = s.Apply(ctx, taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
			require.ErrorIs(t, err, taskstate.ErrUnavailable)
			_, err = s.Heartbeat(ctx, time.Minute, []taskstate.Beat{{TaskID: idA, Status: taskstate.StatusRunning}})
			require.ErrorIs(t, err, taskstate.ErrUnavailable)
			require.ErrorIs(t, s.Ping(ctx), taskstate.ErrUnavailable)
			require.ErrorIs(t, s.CheckSchema(ctx), taskstate.ErrUnavailable)
			require.NoError(t, server.Restart(ctx))
			require.NoError(t, submit(idB), "dead connections of the pool are replaced")
			got, err := s.Get(ctx, taskstate.System(), idA)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusQueued, got.Status)
		})
	}
}
