package suite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed/local"
	"github.com/millweir/millweir/pkg/ingest/embed/openai"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
	"github.com/millweir/millweir/pkg/ingest/vector/embedded"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/redisclient"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstore"
)

// schemaRetry is the pause between two looks for a database that has not been migrated, or does not answer yet.
const schemaRetry = 2 * time.Second

// Parts are what services are made of. Close closes what was opened, the last first.
type Parts struct {
	Env      *process.Env
	Store    *taskstore.Store
	Redis    rueidis.Client // nil: REDIS_URL is not set
	Files    *files.Folder
	Vectors  ingest.VectorStore
	Embedder ingest.Embedder

	kafka      *kafkaq.Client   // nil: neither the transport nor a relay needs it
	producer   *kafkaq.Producer // with kafka
	signal     *outbox.Signal   // rung by commits that wrote events
	metrics    *redisq.Metrics
	schemaGood atomic.Bool
	closers    []func() error
}

// Close closes the parts; errors are logged, for nothing is left to do about them.
func (p *Parts) Close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		if err := p.closers[i](); err != nil {
			p.Env.Log.Warn("suite: close", slog.Any("error", err))
		}
	}
	p.closers = nil
}

// watch shows a part's figures, once per process.
func (p *Parts) watch(c prometheus.Collector) {
	var twice prometheus.AlreadyRegisteredError
	if err := p.Env.Metrics.Register(c); err != nil && !errors.As(err, &twice) {
		p.Env.Log.Warn("suite: figures of a part", slog.Any("error", err))
	}
}

// later keeps a closer for Close.
func (p *Parts) later(f func() error) { p.closers = append(p.closers, f) }

// Open opens what every service needs; close it in the end. It does not need a server that answers (design D16).
func Open(ctx context.Context, env *process.Env, s Shared) (*Parts, error) {
	p := &Parts{Env: env, metrics: redisq.NewMetrics(env.Metrics)}
	for _, step := range []func() error{
		func() error { return p.openStore(ctx, s.Store, s.Kafka, s.Queue.Kind) },
		func() error { return p.openQueues(s) },
		func() error { return p.watchDurability(ctx, s.Store, s.Queue) },
		func() error { return p.openFiles(s.Uploads) },
		func() error { return p.openVectors(s.Vectors) },
		func() error { return p.openEmbedder(s.Embedding) },
	} {
		if err := step(); err != nil {
			p.Close()
			return nil, err
		}
	}
	env.Log.Info("suite: parts", slog.String("database", p.Store.Dialect()), describeQueue(s.Queue, s.Kafka),
		slog.String("vectors", s.Vectors.Kind), slog.String("embeddings", s.Embedding.describe()))
	return p, nil
}

// OpenStore opens the database that the settings name.
func OpenStore(ctx context.Context, s Store) (*taskstore.Store, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	store, err := taskstore.Open(ctx, s.config())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return store, nil
}

// openStore opens the database and watches it; on the Kafka transport changes of tasks write their events.
func (p *Parts) openStore(ctx context.Context, s Store, k Kafka, transport string) error {
	if err := s.validate(); err != nil {
		return err
	}
	cfg, events := s.config(), &eventWriter{}
	p.signal = outbox.NewSignal()
	if transport == QueueKafka {
		cfg.Outbox, cfg.OnEvents = events.Write, p.signal.Ring
	}
	store, err := taskstore.Open(ctx, cfg)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	events.writer = outbox.NewWriter(store.Dialect(), k.Topic, k.Group)
	if !s.MySQLDSN.Empty() && !s.DatabaseURL.Empty() {
		p.Env.Log.Warn("suite: MYSQL_DSN and DATABASE_URL are both set; DATABASE_URL is used")
	}
	p.Store = store
	p.later(store.Close)
	p.Env.Ready.Register("database", store.Ping)
	return nil
}

// openQueues makes the clients of the transport and, where its address is set, of Redis.
func (p *Parts) openQueues(s Shared) error {
	if !s.Queue.RedisURL.Empty() {
		if err := p.openRedis(s.Queue); err != nil {
			return err
		}
	}
	if s.Queue.Kind == QueueKafka {
		return p.openKafka(s.Kafka)
	}
	return nil
}

// openRedis makes the client of Redis.
func (p *Parts) openRedis(q Queue) error {
	client, err := redisclient.New(q.RedisURL.Reveal())
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	p.Redis = client
	p.later(func() error { client.Close(); return nil })
	return nil
}

// openFiles opens the upload folder.
func (p *Parts) openFiles(u Uploads) error {
	if err := os.MkdirAll(u.Dir, 0o750); err != nil {
		return fmt.Errorf("UPLOAD_DIR: %w", err)
	}
	folder, err := files.Open(u.Dir)
	if err != nil {
		return fmt.Errorf("UPLOAD_DIR: %w", err)
	}
	p.Files = folder
	p.later(folder.Close)
	return nil
}

// openVectors opens the vector store.
func (p *Parts) openVectors(v Vectors) error {
	if v.Kind == "embedded" {
		store, err := embedded.Open(v.Dir, embedded.Options{MaxBytes: v.MaxBytes, Log: p.Env.Log})
		if err != nil {
			return fmt.Errorf("VECTOR_DIR: %w", err)
		}
		p.Vectors = store
		p.later(store.Close)
	} else {
		store, err := chroma.New(chroma.Config{
			BaseURL: v.URL.Reveal(), Tenant: v.Tenant, Database: v.Database, Token: v.Token.Reveal(), Timeout: v.Timeout,
		}, chroma.WithTracerProvider(otel.GetTracerProvider()))
		if err != nil {
			return fmt.Errorf("CHROMA_BASE_URL: %w", err)
		}
		p.Vectors = store
		p.later(store.Close)
	}
	p.Env.Ready.Register("vectors", p.Vectors.Ping)
	return nil
}

// openEmbedder chooses who makes vectors.
func (p *Parts) openEmbedder(e Embedding) error {
	if e.URL.Empty() {
		p.Embedder = local.New()
		return nil
	}
	cfg := openai.NewDefaultConfig()
	cfg.BaseURL, cfg.Model, cfg.APIKey, cfg.API = e.URL.Reveal(), e.Model, e.Key.Reveal(), openai.API(e.API)
	cfg.BatchSize, cfg.Dimensions, cfg.Timeout = e.BatchSize, e.Dimensions, e.Timeout
	embedder, err := openai.New(cfg, openai.WithTracerProvider(otel.GetTracerProvider()))
	if err != nil {
		return fmt.Errorf("EMBEDDING_BASE_URL: %w", err)
	}
	p.Embedder = embedder
	return nil
}

// queueConfig is redisq's view of the settings.
func queueConfig(q Queue) redisq.Config {
	c := redisq.NewDefaultConfig(q.RedisURL.Reveal())
	c.StreamKey, c.Group, c.DLQKey = q.StreamKey, q.Group, q.DLQKey
	return c
}

// memberConfig is queueConfig for a member of the group.
func memberConfig(q Queue, w Work) redisq.Config {
	c := queueConfig(q)
	c.ZombieMaxPending, c.ZombieMinIdle = w.ZombieMax, ms(w.ZombieIdleMS)
	c.ZombieInterval, c.ZombieDryRun = ms(w.ZombieMS), w.ZombieDryRun
	return c
}

// CheckSchema returns nil once the database has this program's schema. It looks until that was so and then no more:
// a look takes the migrations' lock, which is nothing for every readiness probe.
func (p *Parts) CheckSchema(ctx context.Context) error {
	if p.schemaGood.Load() {
		return nil
	}
	err := p.Store.CheckSchema(ctx)
	if err == nil {
		p.schemaGood.Store(true)
	}
	return err
}

// waitForSchema returns true when the database has this program's schema, and false when ctx ends before;
// until then it says what is missing.
func (p *Parts) waitForSchema(ctx context.Context) bool {
	said := ""
	for {
		err := p.CheckSchema(ctx)
		if err == nil {
			return true
		}
		if text := err.Error(); text != said {
			said = text
			p.Env.Log.Warn("suite: waiting for the database", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(schemaRetry):
		}
	}
}

// processName names this start of a process in leases: unique, ASCII, and short, since every claim writes it.
func processName(service string) string {
	return service + "-" + strings.ToLower(rand.Text()[:8])
}

// halfJitter takes away up to a half of a wait.
func halfJitter() float64 { return mathrand.Float64() / 2 }
