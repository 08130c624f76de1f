package labserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCountersCountWhatClientsDoAndNotTheLooks(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{KindMariaDB, KindPostgres} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			// Both keep statistics of tables by themselves: what that reads and commits, whenever it does, is no client's.
			opts := Options{Database: "x", Args: []string{"--innodb-stats-auto-recalc=off"}}
			if kind == KindPostgres {
				opts.Args = []string{"-c", "autovacuum=off"}
			}
			s := Private(t, kind, opts)
			// The client of the tests logs in as the superuser, whom Postgres' figures leave out.
			as, statements := "", 5.0
			if kind == KindPostgres {
				as, statements = "SET ROLE "+User+"; ", 6
			}
			run := func(sql string) { require.NoError(t, s.SQL(t.Context(), "x", as+sql)) }
			if kind == KindMariaDB { // whose sessions are not counted while they end
				session, err := s.mariadbSession("x")
				require.NoError(t, err)
				defer func() { require.NoError(t, session.Close()) }()
				run = func(sql string) {
					_, err := session.ExecContext(t.Context(), sql)
					require.NoError(t, err)
				}
			}
			run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
			for i := range 40 {
				run(fmt.Sprintf("INSERT INTO t VALUES (%d, %d)", i, i))
			}
			if kind == KindPostgres {
				require.Eventually(t, func() bool { // a session counts when it ends, after its client
					n, err := s.ask(t.Context(), "", "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = 'x'")
					return err == nil && strings.TrimSpace(n) == "0"
				}, time.Minute, 20*time.Millisecond)
			}
			before := counters(t, s)
			silent := counters(t, s).Sub(before)
			require.Zero(t, silent.Statements)
			require.Zero(t, silent.Commits)
			require.Zero(t, silent.RowsRead)
			require.Zero(t, silent.TempTables)

			before = counters(t, s)
			const n = 10
			for range n {
				run("BEGIN; UPDATE t SET v = v + 1 WHERE id = 1; INSERT INTO t SELECT MAX(id) + 1, 0 FROM t; COMMIT; SELECT * FROM t WHERE v = 7")
			}
			per := counters(t, s).Sub(before).Per(n)
			require.InDelta(t, statements, per.Statements, 0.01)
			require.GreaterOrEqual(t, per.Commits, 1.0)
			require.LessOrEqual(t, per.Commits, 3.0, "Postgres counts what only reads too, and the login")
			require.GreaterOrEqual(t, per.Fsyncs, 0.1)
			require.Less(t, per.Fsyncs, 50.0, "a server that idles between two statements flushes its pages too")
			require.Greater(t, per.RedoBytes, 50.0)
			require.Less(t, per.RedoBytes, 50_000.0)
			require.Greater(t, per.RowsRead, 40.0)
			require.Less(t, per.RowsRead, 400.0)
		})
	}
}

func TestCountersOfRedis(t *testing.T) {
	t.Parallel()
	s := Private(t, KindRedis, Options{})
	before := counters(t, s)
	silent := counters(t, s).Sub(before)
	require.Zero(t, silent.Commands)
	require.InDelta(t, 0, silent.Reads, 1, "see below")
	before = counters(t, s)
	for range 10 {
		_, err := s.RedisCommand(t.Context(), "XADD", "k", "*", "a", "b")
		require.NoError(t, err)
	}
	per := counters(t, s).Sub(before).Per(10)
	require.InDelta(t, 1, per.Commands, 0.001)
	require.InDelta(t, 1, per.Named["cmdstat_xadd"], 0.001)
	// The server may look at the counters before it has read that the last connection ended.
	require.InDelta(t, 2, per.Reads, 0.101, "the command and the end of its connection")
	require.GreaterOrEqual(t, counters(t, s).CPU, 0.0)
}

func TestServersWithoutCountersSaySo(t *testing.T) {
	t.Parallel()
	_, err := (&Server{Kind: KindChroma}).Counters(t.Context())
	require.ErrorContains(t, err, "chroma has no counters")
}

func counters(t *testing.T, s *Server) Counters {
	t.Helper()
	c, err := s.Counters(t.Context())
	require.NoError(t, err)
	return c
}
