package suite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/streamq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The values of INGEST_QUEUE.
const (
	QueueRedis = "redis"
	QueueKafka = "kafka"
)

// retentionEvery is the pause between two passes over events that are of no more use.
const retentionEvery = 10 * time.Minute

// Kafka says how to reach Kafka and what is there.
type Kafka struct {
	Bootstrap      string         `envconfig:"KAFKA_BOOTSTRAP_SERVERS" desc:"brokers, host:port,…"`
	TLS            bool           `envconfig:"KAFKA_TLS" default:"false" desc:"talk to the brokers over TLS (SSL_CERT_FILE names other roots than the system's)"`
	Mechanism      string         `envconfig:"KAFKA_SASL_MECHANISM" desc:"PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; not set: no login"`
	User           string         `envconfig:"KAFKA_SASL_USER" desc:"login at the brokers"`
	Password       process.Secret `envconfig:"KAFKA_SASL_PASSWORD" desc:"its password"`
	Topic          string         `envconfig:"INGEST_KAFKA_TOPIC" default:"ingest-tasks" desc:"topic of deliveries; dead letters go to this name and -dlq (millweir kafka init makes both)"`
	Group          string         `envconfig:"INGEST_KAFKA_GROUP" default:"ingest-workers" desc:"consumer group of the workers"`
	RetentionHours int            `envconfig:"OUTBOX_RETENTION_HOURS" default:"168" allowed:"1..876000" desc:"how long sent events are kept in the database"`
}

// Config is kafkaq's view of the settings.
func (k Kafka) Config() kafkaq.Config {
	c := kafkaq.NewDefaultConfig(k.Bootstrap)
	c.TLS, c.Mechanism, c.User, c.Password = k.TLS, k.Mechanism, k.User, k.Password.Reveal()
	c.Topic, c.Group = k.Topic, k.Group
	return c
}

// Validate says that Kafka is needed, and that its settings can be ones.
func (k Kafka) Validate() error {
	if k.Bootstrap == "" {
		return process.BadSetting("KAFKA_BOOTSTRAP_SERVERS", "is not set: INGEST_QUEUE=kafka carries deliveries over Kafka, and the relay sends there")
	}
	return k.Config().Validate()
}

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
	c.MaxAttempts, c.BaseBackoff, c.MaxBackoff = p.MaxAttempts, ms(p.BaseMS), ms(p.MaxMS)
	c.BatchSize, c.Interval = p.Batch, ms(p.IntervalMS)
	return c
}

// Relay are the settings of outbox-relay.
type Relay struct {
	Store      Store
	Kafka      Kafka
	Publishing Publishing
}

// Validate joins the problems of all parts.
func (r *Relay) Validate() error {
	return errors.Join(r.Store.validate(), r.Kafka.Validate(), r.Publishing.config().Validate())
}

// RunRelay is the body of outbox-relay: it sends events until ctx ends. INGEST_QUEUE does not matter to it: what is left on
// the other transport's side is sent too (design D18).
func RunRelay(ctx context.Context, env *process.Env, r *Relay) error {
	p := &Parts{Env: env}
	defer p.Close()
	if err := errors.Join(p.openStore(ctx, r.Store, Kafka{}, QueueRedis), p.openKafka(r.Kafka)); err != nil {
		return err
	}
	relay, err := p.Relay(r.Publishing, r.Kafka)
	if err != nil {
		return err
	}
	janitor, err := p.janitor(r.Kafka)
	if err != nil {
		return err
	}
	p.Env.Ready.Register("kafka", p.kafka.Ping)
	if !p.waitForSchema(ctx) {
		return nil
	}
	return process.RunAll(ctx, relay, janitor)
}

// openKafka makes the client and the producer.
func (p *Parts) openKafka(k Kafka) error {
	client, err := kafkaq.NewClient(k.Config())
	if err != nil {
		return fmt.Errorf("KAFKA_*: %w", err)
	}
	p.later(client.Close)
	p.kafka, p.producer = client, kafkaq.NewProducer(client)
	p.later(p.producer.Close)
	return nil
}

// Relay makes what sends events; commits of this process wake it.
func (p *Parts) Relay(settings Publishing, k Kafka) (process.Service, error) {
	relay, err := outbox.NewRelay(settings.config(), outbox.Deps{
		Store: outbox.NewStore(p.Store), Sender: p.producer, Signal: p.signal, Log: p.Env.Log, Metrics: p.Env.Metrics, Clock: time.Now,
		DeadLetters: outbox.DLQTopic(k.Topic),
	})
	if err != nil {
		return nil, err
	}
	return process.Named("relay", relay), nil
}

// janitor removes events that are of no more use.
func (p *Parts) janitor(k Kafka) (process.Service, error) {
	janitor, err := outbox.NewJanitor(outbox.NewStore(p.Store), outbox.JanitorConfig{
		Topic: k.Topic, Retention: time.Duration(k.RetentionHours) * time.Hour, Interval: retentionEvery,
	}, p.Env.Log, time.Now)
	if err != nil {
		return nil, err
	}
	return process.Named("janitor of events", janitor), nil
}

// transport are the parts of a runner that INGEST_QUEUE decides.
func (p *Parts) transport(w *Worker) (queue ingestq.Consumer, events taskrun.Outbox, deadLetters ingestq.DeadLetterWriter, err error) {
	s := w.Shared
	if s.Queue.Kind == QueueKafka {
		member := kafkaq.New(p.kafka, p.producer, p.Env.Log, time.Now, kafkaq.NewMetrics(p.Env.Metrics))
		p.watch(p.kafka.Collector(time.Now))
		if p.Redis != nil && s.Queue.DLQKey != "" { // entries that rows owe since they were on the other transport
			deadLetters = redisq.New(p.Redis, queueConfig(s.Queue), p.Env.Log, time.Now, p.metrics)
		}
		return member, outbox.NewReader(p.Store, s.Kafka.Topic), deadLetters, nil
	}
	if queue, err = p.redisMember(w); err != nil {
		return nil, nil, nil, err
	}
	if s.Kafka.Bootstrap == "" { // no relay can send dead letters that the other transport has left (design D11)
		events = outbox.NewReader(p.Store, s.Kafka.Topic)
	}
	return queue, events, nil, nil
}

// eventWriter writes the events of rows, once the database and so its dialect are known; nil: the transport has none.
type eventWriter struct{ writer *outbox.Writer }

// Write implements taskstate.OutboxFunc.
func (w *eventWriter) Write(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, rows []taskstate.Changed) (int, error) {
	return w.writer.Write(ctx, tx, m, rows)
}

// describeQueue names the transport for the start line.
func describeQueue(q Queue, k Kafka) slog.Attr {
	if q.Kind == QueueKafka {
		return slog.String("queue", "kafka topic "+k.Topic)
	}
	if q.partitioned() {
		return slog.String("queue", "redis topic "+streamq.Topic+" of "+strconv.Itoa(q.Partitions)+" partitions")
	}
	return slog.String("queue", "redis")
}
