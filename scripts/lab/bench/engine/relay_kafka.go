package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
)

// rawLanes are the batches that the raw producer has under way, as many as the relay.
const rawLanes = 4

// counting is a sender that counts what was acknowledged.
type counting struct {
	outbox.Sender
	standIn
}

// Send implements outbox.Sender.
func (c *counting) Send(ctx context.Context, events []outbox.Event) []outbox.Result {
	out := c.Sender.Send(ctx, events)
	for _, r := range out {
		if r.Err == nil {
			c.took.Add(1)
		}
	}
	return out
}

// Probe implements outbox.Sender.
func (c *counting) Probe(ctx context.Context) error { return c.Sender.Probe(ctx) }

// realKafka is the relay to a real broker beside its own producer without an outbox.
func (r *outboxRig) realKafka(ctx context.Context) ([]figure.Figure, error) {
	server, err := labserver.Start(ctx, labserver.KindKafka, labserver.Options{})
	if err != nil {
		return nil, err
	}
	s := Servers{Kafka: server}
	defer s.End()
	cfg := kafkaq.NewDefaultConfig(server.Addr)
	if _, err := kafkaq.Init(ctx, cfg, kafkaq.TopicParams{Partitions: kafkaPartitions}); err != nil {
		return nil, err
	}
	client, err := kafkaq.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	producer := kafkaq.NewProducer(client)
	defer func() { _ = producer.Close() }()
	if err := r.fill(ctx); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	raw, err := r.rawProducer(ctx, producer)
	if err != nil {
		return nil, fmt.Errorf("raw producer: %w", err)
	}
	sender := &counting{Sender: producer}
	began := time.Now()
	if err := r.relaying(ctx, relayBatch, sender, func(ctx context.Context) error { return sender.wait(ctx, relayEvents) }); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	sent := PerSecond(relayEvents, time.Since(began))
	return []figure.Figure{
		{Name: "relay to a real Kafka, batches of 500", Measured: sent, Unit: "/s", Asked: 10_000, Relation: "≥", Note: fmt.Sprintf("%d events, %d partitions, acks=all, idempotent", relayEvents, kafkaPartitions)},
		{Name: "share of its producer's own rate", Measured: sent / raw, Unit: "×", Note: fmt.Sprintf("without an outbox %.0f/s", raw)},
	}, nil
}

// rawProducer sends as many events of the same size as the outbox holds, and returns the rate; one batch before them opens the
// connections.
func (r *outboxRig) rawProducer(ctx context.Context, producer *kafkaq.Producer) (float64, error) {
	events, err := r.store.Turn(ctx, outbox.Turn{Status: outbox.StatusNew, Limit: relayBatch, Token: "bench", Lease: 0}) // over at once
	if err != nil {
		return 0, err
	}
	batch := make([]outbox.Event, len(events))
	for i, e := range events {
		batch[i] = e.Event
	}
	send := func() error {
		for _, one := range producer.Send(ctx, batch) {
			if one.Err != nil {
				return one.Err
			}
		}
		return nil
	}
	if err := send(); err != nil {
		return 0, err
	}
	var left atomic.Int64
	left.Store(relayEvents / relayBatch)
	began := time.Now()
	var lanes errgroup.Group
	for range rawLanes {
		lanes.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := send(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = lanes.Wait()
	return PerSecond(relayEvents, time.Since(began)), err
}
