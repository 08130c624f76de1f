package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/documents"
	_ "github.com/millweir/millweir/pkg/wiring/kafka"
	"github.com/millweir/millweir/pkg/wiring/queue"
	_ "github.com/millweir/millweir/pkg/wiring/redis"
	"github.com/millweir/millweir/pkg/workflow"
)

func TestMain(m *testing.M) {
	if child.Is(os.Args) {
		os.Exit(child.Main())
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
func settings(t *testing.T, env map[string]string) (Settings, error) {
	t.Helper()
	dir := t.TempDir()
	for k, v := range map[string]string{"UPLOAD_DIR": filepath.Join(dir, "uploads"), "VECTOR_DIR": filepath.Join(dir, "vectors")} {
		t.Setenv(k, v)
	}
	for k, v := range env {
		t.Setenv(k, v)
	}
	return process.Load[Settings]()
}

// closedPort is an address on which nobody listens; of a port that was free a moment ago that is not known.
const closedPort = "127.0.0.1:1"

// waitLimit only keeps a broken test from hanging.
const waitLimit = 2 * time.Minute

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

// On the Kafka transport Kafka is needed and Redis is not; a worker of the other transport refuses to start.
func TestEachTransportNamesWhatItNeeds(t *testing.T) {
	base := map[string]string{"DATABASE_URL": "sqlite:x.db", "VECTOR_STORE": "embedded", "INGEST_QUEUE": "kafka", "REDIS_URL": "", "KAFKA_BOOTSTRAP_SERVERS": ""}
	_, err := settings(t, base)
	require.ErrorIs(t, err, process.ErrBadSetting)
	require.ErrorContains(t, err, "KAFKA_BOOTSTRAP_SERVERS")
	require.NotContains(t, err.Error(), "REDIS_URL")
	w, err := settings(t, map[string]string{"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
	require.NoError(t, err)
	require.False(t, w.Shared.Policy().DLQ, "an event is written with the row: nothing is owed")
	require.ErrorContains(t, Run(t.Context(), newEnv(), &w, RoleWorker), "INGEST_QUEUE")
	for name, bad := range map[string]string{
		"KAFKA_SASL_MECHANISM": "GSSAPI", "INGEST_KAFKA_TOPIC": "a b", "KAFKA_TLS": "perhaps", "OUTBOX_RETENTION_HOURS": "0",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := settings(t, map[string]string{name: bad})
			require.ErrorContains(t, err, name)
		})
	}
	w.Shared.Queue.Kind = queue.Redis
	err = Run(t.Context(), newEnv(), &w, RoleConsumer)
	require.ErrorIs(t, err, process.ErrBadSetting)
	require.ErrorContains(t, err, "INGEST_QUEUE")
}

func TestSettingsOutOfRangeAreRefusedByName(t *testing.T) {
	base := map[string]string{"DATABASE_URL": "sqlite:x.db", "REDIS_URL": "redis://127.0.0.1:1", "VECTOR_STORE": "embedded"}
	for name, bad := range map[string]string{
		"INGEST_LEASE_MS": "10", "INGEST_MAX_CRASHES": "1", "INGEST_REDIS_MAX_ATTEMPTS": "0", "INGEST_STAGE_STALL_MS": "embed=x",
		"INGEST_QUEUE": "rabbit", "CHUNK_MODE": "words", "EXTRACT_PARALLEL": "0", "EXTRACT_OCR": "other",
		"EXTRACT_KIND": "tika", "EXTRACT_URL": "http://127.0.0.1:1", "EXTRACT_TYPES": "no type", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS": "-1",
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

// What both sides know of types reaches the readers of the workers.
func TestReadersGetWhatIsLetIn(t *testing.T) {
	s, err := settings(t, map[string]string{
		"DATABASE_URL": "sqlite:x.db", "REDIS_URL": "redis://127.0.0.1:1", "VECTOR_STORE": "embedded", "EXTRACT_OCR": "tesseract",
		"EXTRACT_KIND": "docling", "EXTRACT_URL": "http://user:word@h", "EXTRACT_API_KEY": "key", "EXTRACT_TYPES": "image/*,application/msword",
	})
	require.NoError(t, err)
	c := s.reading()
	require.Equal(t, detect.Config{OCR: detect.Tesseract, Kind: detect.Docling, Types: []string{"image/*", "application/msword"}}, c.Accept)
	require.Equal(t, extract.External{URL: "http://user:word@h", Key: "key"}, c.External)
}

func TestZeroIsAnAllowedWait(t *testing.T) {
	w, err := settings(t, map[string]string{
		"DATABASE_URL": "sqlite:x.db", "REDIS_URL": "redis://127.0.0.1:1", "VECTOR_STORE": "embedded",
		"INGEST_REDIS_RETRY_BASE_BACKOFF_MS": "0", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS": "0", "INGEST_REDIS_RECLAIM_IDLE_MS": "0",
		"ZOMBIE_MIN_IDLE_MS": "0", "INGEST_REDIS_DLQ_STREAM_KEY": "", "INGEST_REDIS_RETRY_JITTER": "on",
	})
	require.NoError(t, err)
	p := w.Shared.Policy()
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
		"MYSQL_DSN": "u:p@tcp(" + closedPort + ")/db", "REDIS_URL": "redis://" + closedPort,
		"CHROMA_BASE_URL": "http://" + closedPort, "DATABASE_URL": "",
	})
	require.NoError(t, err)
	env := newEnv()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, env, &w, RoleWorker) }()
	require.Eventually(t, func() bool {
		return slices.Equal(env.Ready.Check(ctx).Missing, []string{"database", "vectors", "uploads", "queue", "runner", "schema"})
	}, waitLimit, 20*time.Millisecond, "readiness names what is missing")
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
	go func() { done <- Run(ctx, env, &w, RoleReclaimer) }()
	store, err := database.Open(ctx, w.Shared.Store)
	require.NoError(t, err)
	_, err = store.Migrate(ctx) // the service waits for it
	require.NoError(t, err)
	m, err := store.Moment(ctx)
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.Eventually(t, func() bool {
		missing := env.Ready.Check(ctx).Missing
		return slices.Contains(missing, "uploads") && slices.Contains(missing, "runner") && !slices.Contains(missing, "database")
	}, waitLimit, 20*time.Millisecond, "nobody has marked the upload folder yet")
	require.NoError(t, files.Mark(w.Shared.Uploads.Dir, m.Epoch))
	require.Eventually(t, func() bool { return env.Ready.Check(ctx).Ready }, waitLimit, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

// The all-in-one takes uploads: its runner may look at a new folder before its gateway does, and finds nothing wrong with it.
func TestTheAllInOneMarksItsUploadFolder(t *testing.T) {
	for role, marks := range map[Role]bool{RoleAll: true, RoleWorker: false} {
		t.Run(string(role), func(t *testing.T) {
			w, err := settings(t, map[string]string{
				"DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "MYSQL_DSN": "", "VECTOR_STORE": "embedded",
				"REDIS_URL": "redis://" + closedPort,
			})
			require.NoError(t, err)
			env := newEnv()
			p, err := documents.Open(t.Context(), env, w.Shared)
			require.NoError(t, err)
			defer p.Close()
			_, err = p.Store.Migrate(t.Context())
			require.NoError(t, err)
			_, err = Services(p, &w, role) // there is no gateway that could be first
			require.NoError(t, err)
			require.Equal(t, marks, !slices.Contains(env.Ready.Check(t.Context()).Missing, "uploads"))
		})
	}
}

// An entry that a row owes is written to Redis where that has a dead letter stream, and becomes an event elsewhere.
func TestOwedEntriesHaveAPlace(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		redis, stream string
		written       bool
	}{{closedPort, "ingest:tasks:dlq", true}, {closedPort, "", false}, {"", "ingest:tasks:dlq", false}} {
		url := ""
		if c.redis != "" {
			url = "redis://" + c.redis
		}
		w, err := settings(t, map[string]string{
			"DATABASE_URL": "sqlite:" + filepath.Join(dir, "m.db"), "MYSQL_DSN": "", "VECTOR_STORE": "embedded", "INGEST_QUEUE": "kafka",
			"KAFKA_BOOTSTRAP_SERVERS": closedPort, "REDIS_URL": url, "INGEST_REDIS_DLQ_STREAM_KEY": c.stream,
		})
		require.NoError(t, err)
		p, err := documents.Open(t.Context(), newEnv(), w.Shared)
		require.NoError(t, err)
		deps, err := transport(p, &w)
		require.NoError(t, err)
		require.NotNil(t, deps.Outbox)
		require.Equal(t, c.written, deps.DeadLetters != nil, "%+v", c)
		p.Close()
	}
}

// A topic never shrinks: who asks for fewer partitions than it has does not start; one stream and more partitions do.
func TestPartitionsOnlyGrow(t *testing.T) {
	url := labserver.RedisURL(t)
	dir := t.TempDir()
	connect := func(partitions string) (ingestq.Consumer, error) {
		w, err := settings(t, map[string]string{
			"DATABASE_URL": "sqlite:" + filepath.Join(dir, "m.db"), "MYSQL_DSN": "", "VECTOR_STORE": "embedded", "INGEST_QUEUE": "redis",
			"REDIS_URL": url, "INGEST_STREAM_PARTITIONS": partitions,
		})
		require.NoError(t, err)
		p, err := documents.Open(t.Context(), newEnv(), w.Shared)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		_, _, err = p.Transports[queue.Redis].Publisher()
		deps, transportErr := transport(p, &w)
		require.Equal(t, err == nil, transportErr == nil)
		return deps.Queue, err
	}
	for _, partitions := range []string{"4", "8", "1"} {
		consumer, err := connect(partitions)
		require.NoError(t, err, partitions)
		_, name := consumer.(ingestq.Described).Destination(ingest.TypeDocument)
		require.Equal(t, map[bool]string{true: "ingest:tasks", false: "ingest-tasks"}[partitions == "1"], name)
		_, name = consumer.(ingestq.Described).Destination(workflow.Type)
		require.Equal(t, "queue:tasks", name, "workflow tasks have one stream")
	}
	_, err := connect("4")
	require.ErrorIs(t, err, process.ErrBadSetting)
	require.ErrorContains(t, err, "INGEST_STREAM_PARTITIONS")
	require.ErrorContains(t, err, "set it to 8")
	_, err = settings(t, map[string]string{"INGEST_STREAM_PARTITIONS": "1025"})
	require.ErrorContains(t, err, "INGEST_STREAM_PARTITIONS")
}

// Each stream is read by who is told to; a name that is none is refused with those that are allowed.
func TestRoads(t *testing.T) {
	for roads, want := range map[string]queue.Membership{
		"documents": {SkipWorkflows: true}, "workflows": {SkipDocuments: true}, "workflows, documents": {}, "": {},
	} {
		env := map[string]string{"REDIS_URL": "redis://h", "DATABASE_URL": "sqlite:x", "MYSQL_DSN": "", "VECTOR_STORE": "embedded"}
		if roads != "" {
			env["STREAM_WORKER_ROADS"] = roads
		}
		w, err := settings(t, env)
		require.NoError(t, err, roads)
		got := w.Work.membership()
		require.Equal(t, want, queue.Membership{SkipDocuments: got.SkipDocuments, SkipWorkflows: got.SkipWorkflows}, roads)
	}
	for roads, named := range map[string]string{"cats": `"cats"`, "documents,": `""`, "documents;workflows": "documents and workflows"} {
		_, err := settings(t, map[string]string{"STREAM_WORKER_ROADS": roads})
		require.ErrorContains(t, err, "STREAM_WORKER_ROADS")
		require.ErrorContains(t, err, named)
	}
	t.Setenv("STREAM_WORKER_ROADS", "documents")
	for _, bad := range []map[string]string{
		{"TASK_STREAM_KEY": "ingest:tasks"}, {"TASK_STREAM_KEY": "ingest:tasks:dlq"}, {"TASK_STREAM_KEY": ""},
		{"TASK_STREAM_KEY": "{queue:tasks", "REDIS_URL": "redis-cluster://h"},
	} {
		_, err := settings(t, bad)
		require.ErrorContains(t, err, "TASK_STREAM_KEY", bad)
		require.NotContains(t, err.Error(), "INGEST_STREAM_KEY: must", bad)
	}
	_, err := settings(t, map[string]string{"TASK_STREAM_MAXLEN": "0"})
	require.ErrorContains(t, err, "TASK_STREAM_MAXLEN")
}

// The bodies need no server that answers, and end well when they are told to; their work is tested in taskrun.
func TestRunEndsWithItsContext(t *testing.T) {
	for role, kind := range map[Role]string{RoleWorker: queue.Redis, RoleConsumer: queue.Kafka, RoleReclaimer: queue.Redis} {
		t.Run(string(role), func(t *testing.T) {
			w, err := settings(t, map[string]string{
				"DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "MYSQL_DSN": "", "VECTOR_STORE": "embedded", "INGEST_QUEUE": kind,
				"REDIS_URL": "redis://" + closedPort, "KAFKA_BOOTSTRAP_SERVERS": closedPort,
			})
			require.NoError(t, err)
			env := newEnv()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- Run(ctx, env, &w, role) }()
			require.Eventually(t, func() bool { return len(env.Ready.Check(ctx).Checks) > 0 }, waitLimit, 5*time.Millisecond, "it started")
			cancel()
			require.NoError(t, <-done)
		})
	}
}
