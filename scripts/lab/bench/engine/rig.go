// Package engine measures store, queue, runner and relay in this process, with tasks that do nothing.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const bulk = 500 // tasks of one bulk submit

// joining is how pkg/ingest joins uploads that come one at a time.
var joining = batcher.Config{Workers: 2, MinConcurrent: 24, Most: 128, MaxWait: 250 * time.Millisecond}

// Servers are what a rig works on; sql nil: SQLite in a folder, kafka nil: the Redis transport, redis nil there: the one in process.
type Servers struct {
	SQL, Redis, Kafka *labserver.Server
}

// End ends the servers; their folders are thrown away.
func (s Servers) End() {
	ctx, cancel := context.WithTimeout(context.Background(), figure.StartLimit)
	defer cancel()
	for _, one := range []*labserver.Server{s.SQL, s.Redis, s.Kafka} {
		if one != nil {
			_ = one.Kill(ctx)
		}
	}
}

// rig is the product's store, queue and runner in this process, over tasks that do nothing.
type rig struct {
	Servers
	db        *taskstore.Store
	transport transport
	single    *batcher.Batcher[*single]
	process   string // of its worker; two that run at once have two names
	quiet     bool   // workers do not look around by the clock: what a slow machine would make more of
	ends      []func()
}

// newRig opens and migrates; close it.
func newRig(ctx context.Context, s Servers) (*rig, error) {
	r := &rig{Servers: s, process: "bench"}
	r.single = batcher.New(joining, r.join)
	if err := r.open(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) open(ctx context.Context) (err error) {
	var cfg taskstore.Config
	if r.SQL == nil {
		dir, err := os.MkdirTemp("", "millweir-bench-")
		if err != nil {
			return err
		}
		r.ends = append(r.ends, func() { _ = os.RemoveAll(dir) })
		cfg.DatabaseURL = "sqlite:" + filepath.Join(dir, "tasks.db")
	} else {
		cfg.DatabaseURL = r.SQL.URL("")
	}
	signal := outbox.NewSignal()
	if r.Kafka != nil {
		dialect, _, _ := strings.Cut(cfg.DatabaseURL, ":")
		cfg.Outbox, cfg.OnEvents = outbox.NewWriter(dialect, kafkaTopic, kafkaGroup).Write, signal.Ring
	}
	if r.db, err = taskstore.Open(ctx, cfg); err != nil {
		return err
	}
	r.ends = append(r.ends, func() { _ = r.db.Close() })
	if _, err := r.db.Migrate(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if r.Kafka != nil {
		return r.openKafka(ctx, signal)
	}
	return r.openRedis()
}

// close ends what open began, in reverse order; the servers are the caller's.
func (r *rig) close() {
	for i := len(r.ends) - 1; i >= 0; i-- {
		r.ends[i]()
	}
}

// submitBulk accepts and sends n tasks, so many in one call, by so many callers at the same time.
func (r *rig) submitBulk(ctx context.Context, n, size, callers int) error {
	return inTurns(ctx, n, size, callers, func(ctx context.Context, first, n int) error {
		news := make([]taskstate.NewTask, n)
		for i := range news {
			news[i] = world.NewNoop(first + i)
		}
		tasks, err := r.accept(ctx, news)
		if err != nil {
			return err
		}
		return r.transport.publish(ctx, tasks)
	})
}

// submitSingly accepts and sends n tasks one at a time, by so many callers at the same time; they are joined as uploads are.
func (r *rig) submitSingly(ctx context.Context, n, callers int) error {
	return inTurns(ctx, n, 1, callers, func(ctx context.Context, first, _ int) error {
		return r.submitOne(ctx, &single{task: world.NewNoop(first)})
	})
}

// inTurns cuts n into parts that so many callers take one after the other.
func inTurns(ctx context.Context, n, size, callers int, f func(ctx context.Context, first, n int) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range callers {
		group.Go(func() error {
			for {
				first := int(next.Add(int64(size))) - size
				if first >= n || ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := f(ctx, first, min(size, n-first)); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// single is a task that comes alone.
type single struct {
	task      taskstate.NewTask
	committed time.Time
}

// submitOne accepts and sends one task together with those that come at the same time; it notes when the commit was known.
func (r *rig) submitOne(ctx context.Context, s *single) error { return r.single.Do(ctx, s)[0] }

// join is one batch of them.
func (r *rig) join(ctx context.Context, b *batcher.Batch[*single]) error {
	items := b.Items()
	news := make([]taskstate.NewTask, len(items))
	for i, s := range items {
		news[i] = s.task
	}
	tasks, err := r.accept(ctx, news)
	if err != nil {
		return err
	}
	b.Release()
	now := time.Now()
	for _, s := range items {
		s.committed = now
	}
	return r.transport.publish(ctx, tasks)
}

// accept is the transaction that accepts tasks.
func (r *rig) accept(ctx context.Context, news []taskstate.NewTask) ([]taskstate.Task, error) {
	return r.db.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return news, nil })
}

// start runs a worker with the product's defaults and so many slots; stop lets it end what it has, flush and leave.
func (r *rig) start(slots int, kind world.Noop) (stop func() error) {
	cfg := taskrun.NewDefaultConfig()
	cfg.Process, cfg.Policy.DLQ, cfg.Concurrency = r.process, true, slots
	if r.quiet {
		const never = time.Hour
		cfg.Recovery, cfg.Reconcile.Enabled = false, false
		cfg.SweepInterval, cfg.TrimInterval, cfg.HeartbeatEvery, cfg.Policy.Lease = never, never, never, 4*never
	}
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	runner := taskrun.New(cfg, taskrun.Deps{
		Store: r.db, Queue: r.transport.member(log, registry), Outbox: r.transport.ledger,
		Handlers: map[string]taskrun.Handler{world.NoopType: kind}, Log: log, Metrics: registry,
	})
	return await.Beside(context.Background(), runner.Run)
}

// drain is drainBy this rig's worker, of tasks that do nothing.
func (r *rig) drain(ctx context.Context, n, slots int) (took time.Duration, err error) {
	return drainBy(ctx, []*rig{r}, n, slots, 0)
}

// succeeded is an error unless all n tasks have succeeded. It returns how many entries are left on the list of pending ones for
// reconciling: those of a read that was cut off, whose tasks came a second time by another entry.
func (r *rig) succeeded(ctx context.Context, n int) (pending int64, err error) {
	counts, err := r.db.Counts(ctx, taskstate.System(), "")
	if err != nil {
		return 0, err
	}
	if counts[taskstate.StatusSucceeded] != int64(n) {
		return 0, fmt.Errorf("of %d tasks %v", n, counts)
	}
	return r.transport.pending(ctx)
}

// The transport of a rig on Kafka: the product's names and a usual number of partitions.
const (
	kafkaTopic      = "ingest-tasks"
	kafkaGroup      = "ingest-workers"
	kafkaPartitions = 6
)

// transport is how deliveries come to the rig's worker.
type transport struct {
	publish func(ctx context.Context, tasks []taskstate.Task) error // after their commit
	member  func(log *slog.Logger, registry *prometheus.Registry) ingestq.Consumer
	pending func(ctx context.Context) (int64, error) // deliveries that were given out and not acknowledged
	ledger  taskrun.Outbox                           // nil on Redis
}

// openRedis is the transport over a stream.
func (r *rig) openRedis() error {
	var address string
	if r.Redis == nil {
		url, stop, err := embedded.Start()
		if err != nil {
			return err
		}
		address = url
		r.ends = append(r.ends, stop)
	} else {
		address = r.Redis.URL("")
	}
	client, err := redisclient.New(address)
	if err != nil {
		return err
	}
	r.ends = append(r.ends, client.Close)
	config := redisq.NewDefaultConfig(address)
	sent := redisq.NewPublisher(client, config, slog.New(slog.DiscardHandler), time.Now, nil)
	r.transport = transport{
		publish: func(ctx context.Context, tasks []taskstate.Task) error { return taskrun.Publish(ctx, sent, tasks) },
		member: func(log *slog.Logger, registry *prometheus.Registry) ingestq.Consumer {
			return redisq.New(client, config, log, time.Now, redisq.NewMetrics(registry))
		},
		pending: func(ctx context.Context) (int64, error) {
			stats, err := sent.Stats(ctx)
			return stats.Pending, err
		},
	}
	return nil
}

// openKafka is the transport over outbox, relay and topic; signal wakes the relay, which runs in this process.
func (r *rig) openKafka(ctx context.Context, signal *outbox.Signal) error {
	cfg := kafkaq.NewDefaultConfig(r.Kafka.Addr)
	if _, err := kafkaq.Init(ctx, cfg, kafkaq.TopicParams{Partitions: kafkaPartitions}); err != nil {
		return err
	}
	client, err := kafkaq.NewClient(cfg)
	if err != nil {
		return err
	}
	r.ends = append(r.ends, func() { _ = client.Close() })
	producer := kafkaq.NewProducer(client)
	r.ends = append(r.ends, func() { _ = producer.Close() })
	relay, err := outbox.NewRelay(outbox.NewDefaultConfig(), outbox.Deps{
		Store: outbox.NewStore(r.db), Sender: producer, Signal: signal, Log: slog.New(slog.DiscardHandler), Clock: time.Now,
	})
	if err != nil {
		return err
	}
	stop := await.Beside(context.WithoutCancel(ctx), relay.Run)
	r.ends = append(r.ends, func() { _ = stop() }) // returns nil
	r.transport = transport{
		publish: func(context.Context, []taskstate.Task) error { return nil }, // its event is committed with each task
		member: func(log *slog.Logger, registry *prometheus.Registry) ingestq.Consumer {
			return kafkaq.New(client, producer, log, time.Now, kafkaq.NewMetrics(registry))
		},
		pending: func(context.Context) (int64, error) { return 0, nil },
		ledger:  outbox.NewReader(r.db, kafkaTopic),
	}
	return nil
}

// sent waits until no event is on its way.
func (r *rig) sent(ctx context.Context) error {
	return await.Until(ctx, time.Minute, 10*time.Millisecond, func(ctx context.Context) error {
		counts, err := tables.CountOutbox(ctx, r.db.Reader())
		if err == nil && counts["NEW"]+counts["RETRYING"] > 0 {
			err = fmt.Errorf("events are %v", counts)
		}
		return err
	})
}
