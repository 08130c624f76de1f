package suite

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestMain(m *testing.M) {
	if extract.IsChild(os.Args) {
		os.Exit(extract.ChildMain())
	}
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// newEnv is a process's surroundings without a process.
func newEnv() *process.Env {
	return &process.Env{
		Name: "test", Version: "test", Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: os.Stderr,
	}
}

// settings loads a worker's settings from the environment that is given, over the defaults.
func settings(t *testing.T, env map[string]string) (Worker, error) {
	t.Helper()
	dir := t.TempDir()
	for k, v := range map[string]string{"UPLOAD_DIR": filepath.Join(dir, "uploads"), "VECTOR_DIR": filepath.Join(dir, "vectors")} {
		t.Setenv(k, v)
	}
	for k, v := range env {
		t.Setenv(k, v)
	}
	return process.Load[Worker]()
}

// closedPort answers an address on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// Not parallel, like all that set variables.
func TestEveryMissingNeedIsNamed(t *testing.T) {
	for _, name := range []string{"MYSQL_DSN", "DATABASE_URL", "REDIS_URL", "CHROMA_BASE_URL"} {
		t.Setenv(name, "")
	}
	_, err := settings(t, nil)
	require.ErrorIs(t, err, process.ErrBadSetting)
	for _, name := range []string{"MYSQL_DSN", "REDIS_URL", "CHROMA_BASE_URL"} {
		require.ErrorContains(t, err, name)
	}
	_, err = settings(t, map[string]string{"DATABASE_URL": "sqlite:x.db", "REDIS_URL": "redis://127.0.0.1:1", "VECTOR_STORE": "embedded"})
	require.NoError(t, err)
}

func TestSettingsOutOfRangeAreRefusedByName(t *testing.T) {
	base := map[string]string{"DATABASE_URL": "sqlite:x.db", "REDIS_URL": "redis://127.0.0.1:1", "VECTOR_STORE": "embedded"}
	for name, bad := range map[string]string{
		"INGEST_LEASE_MS": "10", "INGEST_MAX_CRASHES": "1", "INGEST_REDIS_MAX_ATTEMPTS": "0", "INGEST_STAGE_STALL_MS": "embed=x",
		"INGEST_QUEUE": "rabbit", "CHUNK_MODE": "words", "EXTRACT_PARALLEL": "0", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS": "-1",
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range base {
				t.Setenv(k, v)
			}
			_, err := settings(t, map[string]string{name: bad})
			require.ErrorContains(t, err, name)
		})
	}
}

func TestZeroIsAnAllowedWait(t *testing.T) {
	w, err := settings(t, map[string]string{
		"DATABASE_URL": "sqlite:x.db", "REDIS_URL": "redis://127.0.0.1:1", "VECTOR_STORE": "embedded",
		"INGEST_REDIS_RETRY_BASE_BACKOFF_MS": "0", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS": "0", "INGEST_REDIS_RECLAIM_IDLE_MS": "0",
		"ZOMBIE_MIN_IDLE_MS": "0", "INGEST_REDIS_DLQ_STREAM_KEY": "", "INGEST_REDIS_RETRY_JITTER": "on",
	})
	require.NoError(t, err)
	p := w.Shared.policy()
	require.Zero(t, p.Backoff(5))
	require.False(t, p.DLQ, "an empty key turns the dead letters off")
	require.NotNil(t, p.Jitter)
	cfg, err := w.Work.runner("p", p, true)
	require.NoError(t, err)
	require.NoError(t, cfg.Validate())
	require.Equal(t, 5*time.Minute, cfg.StallLimit[taskstate.StageNone])
}

// A service starts, lives and says what is missing while none of its servers answers (design D16).
func TestWorkerLivesWithoutItsServers(t *testing.T) {
	w, err := settings(t, map[string]string{
		"MYSQL_DSN": "u:p@tcp(" + closedPort(t) + ")/db", "REDIS_URL": "redis://" + closedPort(t),
		"CHROMA_BASE_URL": "http://" + closedPort(t), "DATABASE_URL": "",
	})
	require.NoError(t, err)
	env := newEnv()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- RunWorker(ctx, env, &w, RoleWorker) }()
	require.Eventually(t, func() bool {
		missing := env.Ready.Check(ctx).Missing
		return len(missing) == 4 // database, vectors, queue, runner
	}, 10*time.Second, 20*time.Millisecond, "readiness names what is missing")
	select {
	case err := <-done:
		t.Fatalf("the service ended: %v", err)
	default:
	}
	cancel()
	require.NoError(t, <-done)
}

func TestReclaimerRunsOnRealServers(t *testing.T) {
	w, err := settings(t, map[string]string{
		"MYSQL_DSN": labserver.MySQLDatabase(t), "REDIS_URL": labserver.RedisURL(t), "VECTOR_STORE": "embedded", "DATABASE_URL": "",
	})
	require.NoError(t, err)
	env := newEnv()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- RunWorker(ctx, env, &w, RoleReclaimer) }()
	store, err := OpenStore(ctx, w.Shared.Store)
	require.NoError(t, err)
	_, err = store.Migrate(ctx) // the service waits for it
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.Eventually(t, func() bool { return env.Ready.Check(ctx).Ready }, 20*time.Second, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

func TestEmbedderIsChosenByItsURL(t *testing.T) {
	p := &Parts{Env: newEnv()}
	require.NoError(t, p.openEmbedder(Embedding{}))
	require.Equal(t, "local-lexical/1", p.Embedder.Model().Key)
	e := Embedding{URL: process.NewDSN("http://127.0.0.1:1/v1"), Model: "m", API: "openai", BatchSize: 8, Timeout: time.Second}
	require.NoError(t, p.openEmbedder(e))
	require.Contains(t, p.Embedder.Model().Key, "m")
	require.Contains(t, e.describe(), "model m")
	e.Model = ""
	require.ErrorContains(t, p.openEmbedder(e), "EMBEDDING_")
}
