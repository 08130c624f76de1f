package worker

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/wiring/documents"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// durability returns the lines that begin so.
func (l *lines) durability() (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range strings.Split(l.buf.String(), "\n") {
		if strings.Contains(line, "durability: task=") {
			found = append(found, line)
		}
	}
	return found
}

// A worker on a database that would lose accepted uploads is never ready, says why once, and works when it is mended.
func TestUnsafeDatabaseIsNeverReady(t *testing.T) {
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{})
	require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d; SET GLOBAL innodb_flush_log_at_trx_commit = 0"))
	w, err := settings(t, map[string]string{
		"MYSQL_DSN": server.DSN("d"), "DATABASE_URL": "", "REDIS_URL": labserver.RedisURL(t), "VECTOR_STORE": "embedded",
	})
	require.NoError(t, err)
	env, log := newEnv(), &lines{}
	env.Log = slog.New(slog.NewTextHandler(log, nil))
	p, err := documents.Open(t.Context(), env, w.Shared)
	require.NoError(t, err)
	defer p.Close()
	require.Eventually(t, func() bool { return len(log.durability()) > 0 }, waitLimit, 10*time.Millisecond)
	line := log.durability()[0]
	require.Contains(t, line, `level=ERROR msg="durability: task=none, stream=1s"`)
	require.Contains(t, line, "innodb_flush_log_at_trx_commit=0")
	require.Contains(t, line, "ALLOW_UNSAFE_DURABILITY=true")
	report := env.Ready.Check(t.Context())
	require.Eventually(t, func() bool { // another part may be slow to answer for a while
		report = env.Ready.Check(t.Context())
		return slices.Equal(report.Missing, []string{"database", "durability"})
	}, waitLimit, 10*time.Millisecond)
	require.False(t, report.Ready)
	for _, c := range report.Checks {
		if c.Name == "durability" {
			require.Contains(t, c.Error, "innodb_flush_log_at_trx_commit=0")
			require.Contains(t, c.Error, "set innodb_flush_log_at_trx_commit=1")
		}
	}
	_, err = p.Store.Migrate(t.Context())
	require.Error(t, err, "nothing is written to it")

	require.NoError(t, server.SQL(t.Context(), "", "SET GLOBAL innodb_flush_log_at_trx_commit = 1"))
	_, err = p.Store.Migrate(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return env.Ready.Check(t.Context()).Ready }, 30*time.Second+waitLimit, 50*time.Millisecond)
	require.Len(t, log.durability(), 2)
	require.Contains(t, log.durability()[1], `level=INFO msg="durability: task=disk, stream=1s"`)
}

// The loss can be accepted by name: the database is used then, and its weakness stays in sight.
func TestUnsafeDatabaseCanBeAllowed(t *testing.T) {
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{})
	require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d; SET GLOBAL innodb_flush_log_at_trx_commit = 0"))
	w, err := settings(t, map[string]string{
		"MYSQL_DSN": server.DSN("d"), "DATABASE_URL": "", "REDIS_URL": labserver.RedisURL(t), "VECTOR_STORE": "embedded",
		"ALLOW_UNSAFE_DURABILITY": "true",
	})
	require.NoError(t, err)
	env, log := newEnv(), &lines{}
	env.Log = slog.New(slog.NewTextHandler(log, nil))
	p, err := documents.Open(t.Context(), env, w.Shared)
	require.NoError(t, err)
	defer p.Close()
	require.Eventually(t, func() bool { return len(log.durability()) > 0 }, waitLimit, 10*time.Millisecond)
	require.Contains(t, log.durability()[0], "level=WARN")
	require.Equal(t, 1.0, gauge(t, env.Metrics))
	_, err = p.Store.Migrate(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return env.Ready.Check(t.Context()).Ready }, waitLimit, 50*time.Millisecond)
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
