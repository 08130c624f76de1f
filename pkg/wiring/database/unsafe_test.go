package database_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/mysql"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/documents"
	_ "github.com/millweir/millweir/pkg/wiring/redis" // carries deliveries
)

// waitLimit only keeps a broken test from hanging.
const waitLimit = 2 * time.Minute

// onUnsafe opens the parts of a service on a database that would lose what it has answered.
func onUnsafe(t *testing.T, allow string) (*documents.Parts, *labserver.Server, *database.Lines) {
	t.Helper()
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{})
	require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d; SET GLOBAL innodb_flush_log_at_trx_commit = 0"))
	dir := t.TempDir()
	for k, v := range map[string]string{
		"MYSQL_DSN": server.DSN("d"), "DATABASE_URL": "", "REDIS_URL": labserver.RedisURL(t), "VECTOR_STORE": "embedded",
		"UPLOAD_DIR": filepath.Join(dir, "uploads"), "VECTOR_DIR": filepath.Join(dir, "vectors"), "ALLOW_UNSAFE_DURABILITY": allow,
	} {
		t.Setenv(k, v)
	}
	shared, err := process.Load[documents.Shared]()
	require.NoError(t, err)
	log := &database.Lines{}
	p, err := documents.Open(t.Context(), &process.Env{
		Name: "test", Version: "test", Log: slog.New(slog.NewTextHandler(log, nil)),
		Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: os.Stderr,
	}, shared)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	require.Eventually(t, func() bool { return len(log.Durability()) > 0 }, waitLimit, 10*time.Millisecond)
	return p, server, log
}

// A service on a database that would lose accepted uploads is never ready, says why once, and works when it is mended.
func TestUnsafeDatabaseIsNeverReady(t *testing.T) {
	p, server, log := onUnsafe(t, "")
	line := log.Durability()[0]
	require.Contains(t, line, `level=ERROR msg="durability: task=none, stream=1s"`)
	require.Contains(t, line, "innodb_flush_log_at_trx_commit=0")
	require.Contains(t, line, "ALLOW_UNSAFE_DURABILITY=true")
	report := p.Env.Ready.Check(t.Context())
	require.Eventually(t, func() bool { // another part may be slow to answer for a while
		report = p.Env.Ready.Check(t.Context())
		return slices.Equal(report.Missing, []string{"database", "durability"})
	}, waitLimit, 10*time.Millisecond)
	require.False(t, report.Ready)
	for _, c := range report.Checks {
		if c.Name == "durability" {
			require.Contains(t, c.Error, "innodb_flush_log_at_trx_commit=0")
			require.Contains(t, c.Error, "set innodb_flush_log_at_trx_commit=1")
		}
	}
	_, err := p.Store.Migrate(t.Context())
	require.Error(t, err, "nothing is written to it")

	require.NoError(t, server.SQL(t.Context(), "", "SET GLOBAL innodb_flush_log_at_trx_commit = 1"))
	_, err = p.Store.Migrate(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Env.Ready.Check(t.Context()).Ready }, 30*time.Second+waitLimit, 50*time.Millisecond)
	require.Len(t, log.Durability(), 2)
	require.Contains(t, log.Durability()[1], `level=INFO msg="durability: task=disk, stream=1s"`)
}

// The loss can be accepted by name: the database is used then, and its weakness stays in sight.
func TestUnsafeDatabaseCanBeAllowed(t *testing.T) {
	p, _, log := onUnsafe(t, "true")
	require.Contains(t, log.Durability()[0], "level=WARN")
	require.Equal(t, 1.0, gauge(t, p.Env.Metrics))
	_, err := p.Store.Migrate(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Env.Ready.Check(t.Context()).Ready }, waitLimit, 50*time.Millisecond)
}

func gauge(t *testing.T, metrics *prometheus.Registry) float64 {
	t.Helper()
	families, err := metrics.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "durability_degraded" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no durability_degraded")
	return 0
}
