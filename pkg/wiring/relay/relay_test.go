package relay

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
)

// The body needs no server that answers, and ends well when it is told to; its work is tested in outbox and e2e.
func TestRunEndsWithItsContext(t *testing.T) {
	t.Setenv("DATABASE_URL", "sqlite:"+filepath.Join(t.TempDir(), "a.db"))
	t.Setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
	cfg, err := process.Load[Settings]()
	require.NoError(t, err)
	env := &process.Env{
		Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: io.Discard,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, env, &cfg) }()
	require.Eventually(t, func() bool { return len(env.Ready.Check(ctx).Checks) > 0 }, time.Minute, 5*time.Millisecond, "it started")
	cancel()
	require.NoError(t, <-done)
}

func TestItNeedsDatabaseAndKafka(t *testing.T) {
	_, err := process.Load[Settings]()
	require.ErrorContains(t, err, "MYSQL_DSN")
	require.ErrorContains(t, err, "KAFKA_BOOTSTRAP_SERVERS")
}

// A relay lives without its servers too, and says what is missing.
func TestRelayLivesWithoutItsServers(t *testing.T) {
	t.Setenv("MYSQL_DSN", "u:p@tcp(127.0.0.1:1)/db")
	t.Setenv("DATABASE_URL", "")
	t.Setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
	r, err := process.Load[Settings]()
	require.NoError(t, err)
	env := &process.Env{
		Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: io.Discard,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, env, &r) }()
	require.Eventually(t, func() bool {
		return slices.Equal(env.Ready.Check(ctx).Missing, []string{"database", "kafka", "schema"})
	}, time.Minute, 20*time.Millisecond, "readiness names what is missing")
	cancel()
	require.NoError(t, <-done)
}
