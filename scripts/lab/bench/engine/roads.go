package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/tables"
)

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
