package fullload

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	// memberArg makes this program a member of a drill: a worker or reclaimer of tasks that do nothing.
	MemberArg = "member"

	memberSlots = 256
	memberGroup = "ingest-workers"
	memberOpen  = 16 // connections to the database
)

// transport is where a full load's deliveries travel; kafka empty: over Redis.
type transport struct{ sql, redis, kafka, topic string }

// args are the transport as a member's arguments.
func (t transport) args(role, name string) []string {
	return []string{MemberArg, "-role", role, "-process", name, "-sql", t.sql, "-redis", t.redis, "-kafka", t.kafka, "-topic", t.topic}
}

// open opens the database, with events in each transaction where deliveries travel over Kafka.
func (t transport) open(ctx context.Context) (*taskstore.Store, error) {
	cfg := taskstore.Config{DatabaseURL: t.sql, MaxOpen: memberOpen}
	if t.kafka != "" {
		dialect, _, _ := strings.Cut(t.sql, ":")
		cfg.Outbox = outbox.NewWriter(dialect, t.topic, memberGroup).Write
	}
	return taskstore.Open(ctx, cfg)
}

// consumer makes a member of the group; end closes its clients.
func (t transport) consumer(log *slog.Logger, registry *prometheus.Registry) (c ingestq.Consumer, end func(), err error) {
	if t.kafka == "" {
		client, err := redisclient.New(t.redis)
		if err != nil {
			return nil, nil, err
		}
		return redisq.New(client, redisq.NewDefaultConfig(t.redis), log, time.Now, redisq.NewMetrics(registry)), client.Close, nil
	}
	cfg := kafkaq.NewDefaultConfig(t.kafka)
	cfg.Topic, cfg.Group = t.topic, memberGroup
	client, err := kafkaq.NewClient(cfg)
	if err != nil {
		return nil, nil, err
	}
	producer := kafkaq.NewProducer(client)
	return kafkaq.New(client, producer, log, time.Now, kafkaq.NewMetrics(registry)), func() { _, _ = producer.Close(), client.Close() }, nil
}

// RunMember runs tasks that do nothing until ctx ends; it returns the exit code.
func RunMember(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet(MemberArg, flag.ContinueOnError)
	flags.SetOutput(stderr)
	var t transport
	role := flags.String("role", "worker", "worker or reclaimer")
	name := flags.String("process", "member", "name of this start")
	flags.StringVar(&t.sql, "sql", "", "database")
	flags.StringVar(&t.redis, "redis", "", "URL of Redis")
	flags.StringVar(&t.kafka, "kafka", "", "address of Kafka; empty: over Redis")
	flags.StringVar(&t.topic, "topic", "", "topic of deliveries")
	if err := flags.Parse(args); err != nil {
		return process.ExitUsage
	}
	if err := t.work(ctx, *role, *name); err != nil {
		_, _ = fmt.Fprintln(stderr, "member:", err)
		return process.ExitFailed
	}
	return process.ExitOK
}

// work is a member's life.
func (t transport) work(ctx context.Context, role, name string) error {
	db, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // every commit was answered
	log, registry := slog.New(slog.NewJSONHandler(os.Stderr, nil)), prometheus.NewRegistry()
	consumer, end, err := t.consumer(log, registry)
	if err != nil {
		return err
	}
	defer end()
	cfg := taskrun.NewDefaultConfig()
	cfg.Process, cfg.Concurrency, cfg.MainLoop = name, memberSlots, role == "worker"
	cfg.Policy.DLQ, cfg.Policy.Lease, cfg.Policy.MaxCrashes = true, fullLease, fullCrashes
	cfg.Reconcile = taskrun.Reconcile{Enabled: true, Interval: time.Second, Idle: 2 * time.Second, Batch: memberSlots}
	deps := taskrun.Deps{
		Store: db, Queue: consumer, Handlers: map[string]taskrun.Handler{world.NoopType: world.Noop(func(taskstate.Task) {})}, Log: log, Metrics: registry,
	}
	if t.kafka != "" {
		deps.Outbox = outbox.NewReader(db, t.topic)
	}
	return taskrun.New(cfg, deps).Run(ctx)
}
