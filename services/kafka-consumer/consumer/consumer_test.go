package consumer

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/suite"
)

// load reads the settings with a queue.
func load(t *testing.T, queue string) *suite.Worker {
	t.Helper()
	dir := t.TempDir()
	for k, v := range map[string]string{
		"DATABASE_URL": "sqlite:" + filepath.Join(dir, "a.db"), "VECTOR_STORE": "embedded", "INGEST_QUEUE": queue,
		"REDIS_URL": "redis://127.0.0.1:1", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
		"UPLOAD_DIR": filepath.Join(dir, "uploads"), "VECTOR_DIR": filepath.Join(dir, "vectors"),
	} {
		t.Setenv(k, v)
	}
	cfg, err := process.Load[suite.Worker]()
	require.NoError(t, err)
	return &cfg
}

func newEnv() *process.Env {
	return &process.Env{
		Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: io.Discard,
	}
}

// The body needs no server that answers, and ends well when it is told to; its work is tested in taskrun and suite.
func TestRunEndsWithItsContext(t *testing.T) {
	cfg, env := load(t, "kafka"), newEnv()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, env, cfg) }()
	require.Eventually(t, func() bool { return len(env.Ready.Check(ctx).Checks) > 0 }, time.Minute, 5*time.Millisecond, "it started")
	cancel()
	require.NoError(t, <-done)
}

func TestItReadsKafkaAlone(t *testing.T) {
	err := Run(t.Context(), newEnv(), load(t, "redis"))
	require.ErrorIs(t, err, process.ErrBadSetting)
	require.ErrorContains(t, err, "INGEST_QUEUE")
}
