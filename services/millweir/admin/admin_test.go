package admin

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	programs "github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/services/millweir/cli"
)

// run runs one verb over the database that the environment names.
func run(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Run(t.Context(), cli.IO{Out: &o, Err: &e, Getenv: func(string) string { return "" }}, args, Commands)
	return code, o.String(), e.String()
}

// Not parallel: it sets variables.
func TestMigrationsAndKeys(t *testing.T) {
	t.Setenv("MYSQL_DSN", "")
	t.Setenv("DATABASE_URL", "sqlite:"+filepath.Join(t.TempDir(), "a.db"))
	code, out, errs := run(t, "migrate", "status")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, out, "missing")
	require.Contains(t, errs, "run millweir migrate up")
	code, out, _ = run(t, "migrate", "up")
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, out, "applied 001_tasks")
	code, out, _ = run(t, "migrate", "up")
	require.Equal(t, cli.ExitOK, code)
	require.NotContains(t, out, "applied")
	code, _, _ = run(t, "migrate", "status")
	require.Equal(t, cli.ExitOK, code)

	code, _, _ = run(t, "timeline", "renew")
	require.Equal(t, cli.ExitConfirm, code)
	code, out, _ = run(t, "timeline", "renew", "--yes")
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, out, "0 claims ended")

	code, secret, shown := run(t, "keys", "create", "--user", "anna", "--name", "laptop", "--ttl", "24h")
	require.Equal(t, cli.ExitOK, code)
	require.Regexp(t, `^mw_live_[0-9A-Za-z]{36}\n$`, secret)
	code, list, _ := run(t, "keys", "list")
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, list, "laptop")
	require.NotContains(t, list, strings.TrimSpace(secret))
	id := strings.Fields(shown)[1]
	code, _, _ = run(t, "keys", "revoke", id)
	require.Equal(t, cli.ExitOK, code)
	_, list, _ = run(t, "keys", "list")
	require.Contains(t, list, "revoked")
	code, _, _ = run(t, "keys", "revoke", "01a1fc25-92ca-75c6-9b98-06235702558b")
	require.Equal(t, cli.ExitNotFound, code)
	code, _, errs = run(t, "keys", "create", "--user", "")
	require.Equal(t, cli.ExitBadInput, code, errs)
	for _, id := range []string{"anna ", " anna", "anna\u202e", "mu\u0308ller"} {
		code, _, errs = run(t, "keys", "create", "--user", id)
		require.NotZero(t, code, "%+q", id)
		require.Contains(t, errs, "invalid user id", "%+q", id)
	}
	code, _, errs = run(t, "keys", "create", "--user", "x", "--role", "king")
	require.Equal(t, cli.ExitBadInput, code, errs)
	code, _, errs = run(t, "keys", "create", "--user", "x", "--scopes", "read,admin")
	require.Equal(t, cli.ExitBadInput, code)
	require.Contains(t, errs, "admin")
	code, _, _ = run(t, "keys", "create", "--user", "watcher", "--role", "operator", "--scopes", "read")
	require.Equal(t, cli.ExitOK, code)
	code, _, errs = run(t, "keys", "create", "--user", "anna", "--kb", "no such base")
	require.Equal(t, cli.ExitBadInput, code)
	require.Contains(t, errs, `anna has no knowledge base "no such base"`)
	_, list, _ = run(t, "keys", "list")
	require.Regexp(t, `watcher +operator +read +mw_live_`, list)
	for _, bad := range [][]string{{"keys", "revoke"}, {"migrate", "up", "--nonsense"}} {
		code, _, _ = run(t, bad...)
		require.Equal(t, cli.ExitUsage, code, "%v", bad)
	}
	code, _, _ = run(t, "migrate", "up", "--env-file", "/no/such/file")
	require.Equal(t, cli.ExitBadInput, code)
	t.Setenv("DATABASE_URL", "oracle://x")
	code, _, errs = run(t, "migrate", "up")
	require.NotEqual(t, cli.ExitOK, code)
	require.Contains(t, errs, "DATABASE_URL")
}

// A database that is too old is neither migrated nor used: what it does not know would fail in the middle of the work.
// Not parallel: it sets variables.
func TestADatabaseThatIsTooOldIsRefused(t *testing.T) {
	t.Setenv(programs.UnstableVariable, "") // MySQL cannot be told to name another version
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{Database: "d", Args: []string{"--version=10.5.28-MariaDB"}})
	t.Setenv("MYSQL_DSN", server.DSN("d"))
	t.Setenv("DATABASE_URL", "")
	const want = "MariaDB 10.5.28-MariaDB is too old: upgrade it to 10.6 or later"
	code, _, errs := run(t, "migrate", "up")
	require.Equal(t, cli.ExitServer, code)
	require.Contains(t, errs, want)
	settings, err := process.Load[database.Settings]()
	require.NoError(t, err)
	base := wiring.New(&process.Env{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady()})
	defer base.Close()
	db, err := database.Connect(t.Context(), base, settings, nil)
	require.NoError(t, err)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, db.WaitForSchema(stopped))
	require.Contains(t, base.Env.Ready.Check(t.Context()).Checks, process.CheckResult{Name: "schema", Error: want})
}
