// Package relay puts together what sends the events of the outbox to Kafka.
package relay

import (
	"context"
	"errors"
	"time"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/kafka"
	"github.com/millweir/millweir/pkg/wiring/queue"
)

// Publishing says how events are sent; a task's own attempts are INGEST_REDIS_* on both transports.
type Publishing struct {
	MaxAttempts int `envconfig:"INGEST_KAFKA_MAX_ATTEMPTS" default:"10" allowed:"1..1000" desc:"failed attempts to send an event after which it is DEAD"`
	BaseMS      int `envconfig:"INGEST_KAFKA_RETRY_BASE_BACKOFF_MS" default:"1000" allowed:"0..31536000000" desc:"wait after the first failed attempt; doubled after each"`
	MaxMS       int `envconfig:"INGEST_KAFKA_RETRY_MAX_BACKOFF_MS" default:"600000" allowed:"0..31536000000" desc:"longest wait after a failed attempt"`
	Batch       int `envconfig:"INGEST_KAFKA_PUBLISH_BATCH_SIZE" default:"20" allowed:"1..5000" desc:"most events that are sent at once"`
	IntervalMS  int `envconfig:"INGEST_KAFKA_PUBLISH_INTERVAL_MS" default:"1000" allowed:"1..3600000" desc:"longest pause between two looks for events"`
}

// config is the relay's view of the settings.
func (p Publishing) config() outbox.Config {
	c := outbox.NewDefaultConfig()
	c.MaxAttempts, c.BaseBackoff, c.MaxBackoff = p.MaxAttempts, wiring.MS(p.BaseMS), wiring.MS(p.MaxMS)
	c.BatchSize, c.Interval = p.Batch, wiring.MS(p.IntervalMS)
	return c
}

// Settings are those of outbox-relay.
type Settings struct {
	Store      database.Settings
	Kafka      queue.KafkaSettings
	Publishing Publishing
}

// Validate joins the problems of all parts.
func (s *Settings) Validate() error {
	return errors.Join(s.Store.Validate(), kafka.Validate(s.Kafka), s.Publishing.config().Validate())
}

// Run is the body of outbox-relay: it sends events until ctx ends; what is in flight then is waited for and written down.
// INGEST_QUEUE does not matter to it: what is left on the other transport's side is sent too (design D18).
func Run(ctx context.Context, env *process.Env, s *Settings) error {
	b := wiring.New(env)
	defer b.Close()
	db, err := database.Connect(ctx, b, s.Store, nil)
	if err != nil {
		return err
	}
	transport, err := kafka.Open(b, s.Kafka)
	if err != nil {
		return err
	}
	sender, err := Service(env, db, transport, s.Publishing, s.Kafka)
	if err != nil {
		return err
	}
	janitor, err := db.Janitor(s.Kafka.Topic, s.Kafka.RetentionHours)
	if err != nil {
		return err
	}
	env.Ready.Register("kafka", transport.Client.Ping)
	if !db.WaitForSchema(ctx) {
		return nil
	}
	return process.RunAll(ctx, sender, janitor)
}

// Service makes what sends events; commits of this process wake it.
func Service(env *process.Env, db *database.Database, t *kafka.Transport, p Publishing, k queue.KafkaSettings) (process.Service, error) {
	relay, err := outbox.NewRelay(p.config(), outbox.Deps{
		Store: outbox.NewStore(db.Store), Sender: t.Producer, Signal: db.Signal, Log: env.Log, Metrics: env.Metrics, Clock: time.Now,
		DeadLetters: outbox.DLQTopic(k.Topic),
	})
	if err != nil {
		return nil, err
	}
	return process.Named("relay", relay), nil
}
