package taskstore_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

func TestDurableServersSaySo(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, config(t))
			d, err := s.Durability(t.Context())
			require.NoError(t, err)
			require.Equal(t, sqldb.LevelDisk, d.Level(), d.String())
			require.NotEmpty(t, d)
		})
	}
}

// unsafe are servers whose own crash, or a power failure, would lose what they have answered; weak is the setting at fault.
var unsafe = map[string]func(t *testing.T) (cfg taskstore.Config, weak string, mend func()){
	"mysql": func(t *testing.T) (taskstore.Config, string, func()) {
		t.Helper()
		server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{})
		run := func(sql string) { require.NoError(t, server.SQL(t.Context(), "", sql)) }
		run("CREATE DATABASE d; SET GLOBAL innodb_flush_log_at_trx_commit = 0")
		return taskstore.Config{MySQLDSN: server.DSN("d")}, "innodb_flush_log_at_trx_commit=0",
			func() { run("SET GLOBAL innodb_flush_log_at_trx_commit = 1") }
	},
	"postgres": func(t *testing.T) (taskstore.Config, string, func()) {
		t.Helper()
		server := labserver.Private(t, labserver.KindPostgres, labserver.Options{})
		run := func(sql string) { require.NoError(t, server.SQL(t.Context(), "", sql)) }
		run("CREATE DATABASE d")
		run("ALTER DATABASE d SET synchronous_commit = off") // as an operator would, past the server's own file
		return taskstore.Config{DatabaseURL: server.URL("d")}, "synchronous_commit=off",
			func() { run("ALTER DATABASE d SET synchronous_commit = on") }
	},
	"postgres without fsync": func(t *testing.T) (taskstore.Config, string, func()) {
		t.Helper()
		server := labserver.Private(t, labserver.KindPostgres, labserver.Options{Args: []string{"-c", "fsync=off"}})
		require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d"))
		return taskstore.Config{DatabaseURL: server.URL("d")}, "fsync=off", nil
	},
}

// A database that may lose what it has answered takes nothing, says which setting is at fault and what to do,
// and is used as soon as it is mended.
func TestUnsafeServerIsRefused(t *testing.T) {
	t.Parallel()
	for name, prepare := range unsafe {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, weak, mend := prepare(t)
			s := open(t, cfg)
			requireRefused(t, s, weak)
			cfg.AllowUnsafe = true
			allowed := migrated(t, cfg)
			d, err := allowed.Durability(t.Context())
			require.NoError(t, err)
			require.Equal(t, weak, d.Weak().String())
			if mend == nil {
				return
			}
			mend()
			d, err = s.Durability(t.Context())
			require.NoError(t, err)
			require.Equal(t, sqldb.LevelDisk, d.Level())
			require.NoError(t, submitOne(t, s))
		})
	}
}

// requireRefused asks for a probe and a write; both must name the setting.
func requireRefused(t *testing.T, s *taskstore.Store, weak string) {
	t.Helper()
	d, err := s.Durability(t.Context())
	require.NoError(t, err)
	require.Equal(t, sqldb.LevelNone, d.Level())
	require.Equal(t, weak, d.Weak().String())
	for _, err := range []error{s.Ping(t.Context()), submitOne(t, s)} {
		require.ErrorIs(t, err, taskstate.ErrUnavailable)
		var refused *sqldb.UnsafeError
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, weak)
		require.ErrorContains(t, err, "ALLOW_UNSAFE_DURABILITY=true")
	}
}

func submitOne(t *testing.T, s *taskstore.Store) error {
	t.Helper()
	_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{newTask(idA)}, nil
	})
	return err
}

// A server that was changed while it was away is refused when it comes back.
func TestServerThatComesBackUnsafeIsRefused(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{})
	require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d"))
	s := migrated(t, taskstore.Config{MySQLDSN: server.DSN("d")})
	require.NoError(t, submitOne(t, s))
	require.NoError(t, server.Restart(t.Context()))
	require.NoError(t, server.SQL(t.Context(), "", "SET GLOBAL innodb_flush_log_at_trx_commit = 0"))
	requireRefused(t, s, "innodb_flush_log_at_trx_commit=0")
}

// Losing the last second at a power failure only is the operator's choice: it is used, and its weakness is known.
func TestWeakServerIsUsed(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{Args: []string{
		"--log-bin=b", "--server-id=1", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2",
	}})
	require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d"))
	s := migrated(t, taskstore.Config{MySQLDSN: server.DSN("d")})
	require.NoError(t, submitOne(t, s))
	d, err := s.Durability(t.Context())
	require.NoError(t, err)
	require.Equal(t, sqldb.LevelSecond, d.Level())
	require.Equal(t, "innodb_flush_log_at_trx_commit=2 sync_binlog=0", d.Weak().String())
}

// A server whose global settings are unusual is used as any other. One that takes no large statement is refused with the remedy: it would
// hang up on these, which looks as if it were away.
func TestAServerWithOtherDefaults(t *testing.T) {
	t.Parallel()
	args := []string{"--autocommit=0", "--transaction-isolation=SERIALIZABLE", "--default-time-zone=+08:00", "--max-allowed-packet=1M"}
	if os.Getenv(installed.UnstableVariable) != "mysql" { // MySQL takes this one with an empty data folder only
		args = append(args, "--lower-case-table-names=1")
	}
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{Args: args})
	require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d"))
	s, err := taskstore.Open(t.Context(), taskstore.Config{MySQLDSN: server.DSN("d")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	err = s.Ping(t.Context())
	require.ErrorIs(t, err, taskstate.ErrUnavailable)
	require.ErrorContains(t, err, "max_allowed_packet is 1048576: set it to 16M or more")
	require.NoError(t, server.SQL(t.Context(), "", "SET GLOBAL max_allowed_packet = 16777216"))

	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Ping(t.Context()))
	ids := submitted(t, s, 2)
	require.NoError(t, claimedBy(t, s, "p/1", nil, ids[0])[0].Err)
	row, err := s.Get(t.Context(), taskstate.System(), ids[0])
	require.NoError(t, err)
	require.Equal(t, taskstate.StatusRunning, row.Status)
	require.WithinDuration(t, time.Now(), row.UpdatedAt, time.Minute)
	moment, err := s.Moment(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Renew(t.Context(), "p", policy.Lease, 8)) // by statements outside a transaction
	row, err = s.Get(t.Context(), taskstate.System(), ids[0])
	require.NoError(t, err)
	require.False(t, row.LeaseExpiresAt().Before(moment.Now.Add(policy.Lease)), "it was written")
}
