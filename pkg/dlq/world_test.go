package dlq_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq/embedded"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/gateway"
	wiredredis "github.com/millweir/millweir/pkg/wiring/redis"
)

// world is the application on SQLite with a dead letter stream of its own on a real Redis; a worker is played by the test.
type world struct {
	t      *testing.T
	store  taskstate.Database
	app    *gateway.Application
	redis  rueidis.Client
	key    string // of the dead letter stream
	reader ingestq.DeadLetterReader
	caller ingest.Caller
	now    time.Time
	waited time.Duration
	n      int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	shared, _ := process.Load[documents.Shared]() // the defaults; what it complains of is set below
	shared.Store = database.Settings{DatabaseURL: process.NewDSN("sqlite:" + filepath.Join(dir, "a.db"))}
	shared.Queue.RedisURL, shared.Vectors.Kind = process.NewDSN(labserver.RedisURL(t)), "embedded"
	shared.Queue.StreamKey = "s:" + strings.ReplaceAll(filepath.Base(dir), ":", "") + t.Name()
	shared.Queue.DLQKey = shared.Queue.StreamKey + ":dlq"
	shared.Uploads.Dir, shared.Vectors.Dir = filepath.Join(dir, "uploads"), filepath.Join(dir, "vectors")
	parts, err := documents.Open(t.Context(), &process.Env{
		Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(),
	}, shared)
	require.NoError(t, err)
	t.Cleanup(parts.Close)
	_, err = parts.Store.Migrate(t.Context())
	require.NoError(t, err)
	app, err := gateway.New(parts, shared, gateway.Search{}, 1<<20)
	require.NoError(t, err)
	w := &world{
		t: t, store: parts.Store, app: app, redis: wiredredis.Of(parts.Transports).Client, key: shared.Queue.DLQKey, now: time.Now(),
		caller: ingest.Caller{Scope: taskstate.Scope{UserID: "root", Role: taskstate.RoleOperator}, Channel: "http"},
	}
	cfg := redisq.NewDefaultConfig(shared.Queue.RedisURL.Reveal())
	cfg.DLQKey = shared.Queue.DLQKey
	w.reader, err = redisq.NewDeadLetters(wiredredis.Of(parts.Transports).Client, cfg)
	require.NoError(t, err)
	return w
}

// service makes one; change may take things away.
func (w *world) service(change func(*dlq.Deps)) *dlq.Service {
	d := dlq.Deps{
		Reader: w.reader, Store: w.store, App: w.app, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
		Wait: func(_ context.Context, d time.Duration) error {
			w.waited, w.now = w.waited+d, w.now.Add(d)
			return nil
		},
	}
	if change != nil {
		change(&d)
	}
	return dlq.New(d)
}

// upload makes a task.
func (w *world) upload() taskstate.Task {
	w.t.Helper()
	w.n++
	f, err := w.app.Receive(w.t.Context(), strings.NewReader(fmt.Sprintf("text %d of %s", w.n, w.t.Name())), fmt.Sprintf("%d.txt", w.n))
	require.NoError(w.t, err)
	a, err := w.app.Accept(w.t.Context(), w.caller, ingest.Upload{File: f})
	require.NoError(w.t, err)
	return a.Task
}

// kill claims a task and lets it die; without an entry in the stream.
func (w *world) kill(id, cause string) taskstate.Task {
	w.t.Helper()
	policy := taskstate.Policy{Lease: time.Minute, MaxCrashes: 9, Slack: time.Second, DLQ: true}
	actor := taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"}
	var token taskstate.Token
	claim := taskstate.ClaimRequest{Owner: "w/1", Process: "w", Actor: actor, Alone: true}
	w.apply(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		d := taskstate.Claim(policy, m, t, claim)
		require.Equal(w.t, taskstate.AnswerClaimed, d.Answer)
		token = taskstate.Token{Epoch: m.Epoch, Fence: t.Fence + 1}
		return d
	})
	return w.apply(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Fail(policy, m, t, taskstate.Holder{Token: token, Actor: actor}, taskstate.Failure{Cause: cause, Permanent: true})
	})
}

func (w *world) apply(id string, f func(taskstate.DBClock, taskstate.Task) taskstate.Decision) taskstate.Task {
	w.t.Helper()
	out, err := w.store.Apply(w.t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(f)})
	require.NoError(w.t, err)
	require.NoError(w.t, out[0].Err)
	return out[0].After
}

// deadLetter writes the entry of a death.
func (w *world) deadLetter(task string, fence int64, cause string, at time.Time) string {
	w.t.Helper()
	id, err := w.redis.Do(w.t.Context(), w.redis.B().Xadd().Key(w.key).Id("*").FieldValue().
		FieldValue("taskId", task).FieldValue("fence", fmt.Sprint(fence)).FieldValue("lastError", cause).FieldValue("attemptCount", "1").
		FieldValue("failedAt", at.UTC().Format(time.RFC3339Nano)).Build()).ToString()
	require.NoError(w.t, err)
	return id
}

// dead makes a task that died, with its entry.
func (w *world) dead(cause string) (taskstate.Task, string) {
	w.t.Helper()
	t := w.kill(w.upload().ID, cause)
	return t, w.deadLetter(t.ID, t.Fence, cause, t.UpdatedAt)
}

// raw writes a delivery that could not be read.
func (w *world) raw() string {
	w.t.Helper()
	id, err := w.redis.Do(w.t.Context(), w.redis.B().Xadd().Key(w.key).Id("*").FieldValue().
		FieldValue("lastError", "no envelope").FieldValue("what", "ever").Build()).ToString()
	require.NoError(w.t, err)
	return id
}

// kafka is a topic of dead letters with records of somebody else.
func (w *world) kafka(values ...string) ingestq.DeadLetterReader {
	w.t.Helper()
	broker, err := embedded.Start()
	require.NoError(w.t, err)
	w.t.Cleanup(broker.Stop)
	cfg := kafkaq.NewDefaultConfig(broker.Bootstrap())
	require.NoError(w.t, broker.Topic(cfg.DLQTopic(), 1))
	client, err := kafkaq.NewClient(cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, client.Close()) })
	producer := kafkaq.NewProducer(client)
	w.t.Cleanup(func() { require.NoError(w.t, producer.Close()) })
	settings := sarama.NewConfig()
	settings.Producer.Return.Successes = true
	sender, err := sarama.NewSyncProducer(cfg.Brokers, settings)
	require.NoError(w.t, err)
	defer sender.Close() //nolint:errcheck // it has sent
	for _, v := range values {
		_, _, err := sender.SendMessage(&sarama.ProducerMessage{Topic: cfg.DLQTopic(), Value: sarama.StringEncoder(v)})
		require.NoError(w.t, err)
	}
	return kafkaq.NewDeadLetters(client, producer)
}

func (w *world) status(id string) taskstate.Status {
	w.t.Helper()
	t, err := w.store.Get(w.t.Context(), taskstate.System(), id)
	require.NoError(w.t, err)
	return t.Status
}

// entries counts what lies in the stream.
func (w *world) entries() int64 {
	w.t.Helper()
	n, err := w.reader.Length(w.t.Context())
	require.NoError(w.t, err)
	return n
}

// rebook is the stream with failures of the test's choice.
type rebook struct {
	ingestq.DeadLetterReader
	drop func() error
}

func (b *rebook) Drop(ctx context.Context, ids ...string) (int64, error) {
	if err := b.drop(); err != nil {
		return 0, err
	}
	return b.DeadLetterReader.Drop(ctx, ids...)
}
