package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	// defaultLease is INGEST_LEASE_MS where nothing sets it.
	defaultLease = 30 * time.Second
	// defaultSettle is how long a pending delivery of a killed worker may lie there whose task another delivery ended:
	// INGEST_REDIS_RECLAIM_IDLE_MS is ten minutes.
	defaultSettle = 12 * time.Minute
	// defaultKafkaSettle is a lease, a session and a relay's lease on two busy cores.
	defaultKafkaSettle = 3 * time.Minute
)

// addresses are what services of a drill on defaults are told: where things are, and nothing of how they work.
var addresses = []string{
	"LOG_FORMAT", "PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "OPERATOR_ADDR", "HTTP_ADDR", "MYSQL_DSN", "DATABASE_URL", "VECTOR_STORE",
	"CHROMA_BASE_URL", "AUTH_MODE", "UPLOAD_DIR", "REDIS_URL", "INGEST_QUEUE", "KAFKA_BOOTSTRAP_SERVERS", "INGEST_KAFKA_TOPIC",
	"EMBEDDING_BASE_URL", "EMBEDDING_MODEL",
}

// redisDefaults kills workers at work, gateway, reclaimer and Redis once or twice, on settings that nobody changed.
func redisDefaults(ctx context.Context, s *stage) (string, error) {
	return s.onDefaults(ctx, false, defaultSettle, []string{"stream-worker", "ingest-api", "reclaimer", "stream-worker", "broker"})
}

// kafkaDefaults is the same with relays, consumers and the broker.
func kafkaDefaults(ctx context.Context, s *stage) (string, error) {
	return s.onDefaults(ctx, true, defaultKafkaSettle, []string{"kafka-consumer", "outbox-relay", "ingest-api", "reclaimer", "kafka-consumer", "broker"})
}

// onDefaults runs a storm whose services know addresses alone. Two kills of workers cost a task two crashes at most, and the
// third would end it.
func (s *stage) onDefaults(ctx context.Context, kafka bool, settle time.Duration, turn []string) (string, error) {
	s.defaults = true
	var m mourning
	services := everyService
	if kafka {
		services = overKafka
	}
	return storm{
		opts: world.Options{Kafka: kafka}, services: services, settle: settle,
		faults: func(ctx context.Context, c *cluster) error {
			if err := onlyAddresses(c.Told()); err != nil {
				return err
			}
			for _, name := range turn {
				await.Pause(ctx, s.load/time.Duration(len(turn)+1))
				if name == "broker" {
					if err := c.restartBroker(ctx); err != nil {
						return err
					}
					continue
				}
				victim := s.one(c, name)
				if strings.HasSuffix(name, "worker") || strings.HasSuffix(name, "consumer") {
					awaitWork(ctx, c, victim)
				}
				if err := m.kill(ctx, c, victim); err != nil {
					return err
				}
				if _, err := c.add(name); err != nil {
					return err
				}
			}
			await.Pause(ctx, s.load/time.Duration(len(turn)+1))
			return nil
		},
		judge: func(ctx context.Context, c *cluster, _ *apiclient.Record) (string, error) {
			if err := onlyAddresses(c.Told()); err != nil {
				return "", err
			}
			return m.within(ctx, c, defaultLease+2*time.Second)
		},
	}.run(ctx, s)
}

// restartBroker kills Redis or Kafka and starts it again on its data.
func (c *cluster) restartBroker(ctx context.Context) error {
	broker := c.Redis
	if c.Kafka != nil {
		broker = c.Kafka
	}
	if err := broker.Kill(ctx); err != nil {
		return err
	}
	return broker.Restart(ctx)
}

// onlyAddresses returns an error that names a setting which changes how a service works.
func onlyAddresses(told [][]string) error {
	for _, env := range told {
		for _, setting := range env {
			if name, _, _ := strings.Cut(setting, "="); !slices.Contains(addresses, name) {
				return fmt.Errorf("a service runs with %s: this drill is on defaults", setting)
			}
		}
	}
	return nil
}
