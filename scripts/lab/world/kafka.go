package world

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/tables"
)

// topic is the topic of contract §5; that of dead letters has the suffix.
const (
	topic     = "ingest-tasks"
	dlqSuffix = "-dlq"
)

// kafkaInitLimit is for `millweir kafka init` on a loaded machine.
const kafkaInitLimit = 30 * time.Second

// hasRedis tells whether the world has the Redis transport.
func (w *World) hasRedis() bool { return !w.opts.Kafka || w.opts.BothTransports }

// Topic is the world's topic of deliveries.
func (w *World) Topic() string {
	if w.part == 0 {
		return topic
	}
	return topic + "-" + strconv.Itoa(w.part)
}

// InitKafka makes the topics as an operator does.
func (w *World) InitKafka(ctx context.Context) error {
	p, err := w.Command([]string{"kafka", "init"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, kafkaInitLimit, await.ErrTimeout)
	defer cancel()
	code, err := p.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, p.Tail(12))
	}
	if err != nil {
		return fmt.Errorf("millweir kafka init: %w", err)
	}
	return nil
}

// OutboxSent waits until no event is on its way any more.
func (w *World) OutboxSent(ctx context.Context, limit time.Duration) error {
	return await.Until(ctx, limit, 50*time.Millisecond, func(ctx context.Context) error {
		counts, err := tables.CountOutbox(ctx, w.DB.Reader())
		if err == nil && counts["NEW"]+counts["RETRYING"]+counts["DEAD"] > 0 {
			err = fmt.Errorf("events of the outbox are %v, all must be SENT", counts)
		}
		return err
	})
}

// OnKafka tells whether the checker looks at Kafka: deliveries of the world go by it alone, and consumers run until the end
// (in a world on another one's servers they come and go with each trial, and leave records).
func (w *World) OnKafka() bool { return w.Kafka != nil && !w.opts.BothTransports && w.part == 0 }

// openKafka makes a client that looks from outside. Close it.
func (w *World) openKafka() (*kafkaq.Client, error) {
	cfg := kafkaq.NewDefaultConfig(w.Kafka.Addr)
	cfg.Topic = w.Topic()
	return kafkaq.NewClient(cfg)
}

// Finished returns an error while the group has records to finish.
func (w *World) Finished(ctx context.Context) error {
	client, err := w.openKafka()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // only read
	stats, err := client.Stats(ctx)
	if err == nil && stats.Lag > 0 {
		err = fmt.Errorf("the group has not finished %d records", stats.Lag)
	}
	return err
}

// Records counts the records of the world's topic of deliveries by the event that each carries; "" are those of nobody's.
func (w *World) Records(ctx context.Context) (map[string]int, error) {
	client, err := w.openKafka()
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // only read
	out := map[string]int{}
	err = client.Records(ctx, w.Topic(), func(r kafkaq.Record) error {
		out[r.Event]++
		return nil
	})
	return out, err
}
