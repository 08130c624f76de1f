package relay

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// With its bootstrap at a dead port the relay lives, its events go RETRYING with a growing wait and then DEAD (contract §7),
// and it ends well when it is told to.
func TestDeadBrokerAtTheDoor(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	for k, v := range map[string]string{
		"DATABASE_URL": url, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "INGEST_KAFKA_MAX_ATTEMPTS": "2",
		"INGEST_KAFKA_RETRY_BASE_BACKOFF_MS": "1", "INGEST_KAFKA_PUBLISH_INTERVAL_MS": "20",
	} {
		t.Setenv(k, v)
	}
	writer := outbox.NewWriter("sqlite", "ingest-tasks", "ingest-workers")
	store, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: url, Outbox: writer.Write})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = store.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{{
			Task:  taskstate.Task{ID: "0190a6e0-0000-7000-8000-000000000001", UserID: "u1", Type: "document", Channel: "http", MaxAttempts: 2},
			Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "u1"},
		}}, nil
	})
	require.NoError(t, err)
	cfg, err := process.Load[Settings]()
	require.NoError(t, err)
	env := &process.Env{
		Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: io.Discard,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, env, &cfg) }()
	require.Eventually(t, func() bool {
		var status, cause string
		var attempts int
		err := store.Reader().QueryRowContext(ctx, "SELECT status, cause, attempt_count FROM outbox_event").Scan(&status, &cause, &attempts)
		return err == nil && status == "DEAD" && cause == "BROKER_UNAVAILABLE" && attempts == 2
	}, time.Minute, 20*time.Millisecond, "it is given up")
	require.False(t, env.Ready.Check(ctx).Ready, "it says that it cannot send")
	cancel()
	require.NoError(t, <-done)
}
