// Package redis links the Redis transport: deliveries lie in one stream, or with INGEST_STREAM_PARTITIONS above 1 in the
// partitions of a topic.
package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/streamq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/telemetry/mq"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/queue"
)

func init() { queue.Register(queue.Link{Kind: queue.Redis, Validate: validate, Open: open}) }

// Transport is Redis, which REDIS_URL names. With INGEST_QUEUE=kafka it keeps what an earlier transport has left.
type Transport struct {
	Client rueidis.Client

	base     *wiring.Base
	settings queue.Settings
	metrics  *redisq.Metrics
}

var _ queue.Transport = (*Transport)(nil)

// Of returns the Redis of a set; nil: REDIS_URL is not set.
func Of(s queue.Set) *Transport {
	t, _ := s[queue.Redis].(*Transport)
	return t
}

// validate says that Redis is needed, and that its address, stream and group can be ones.
func validate(s queue.Settings, _ queue.KafkaSettings) error {
	switch {
	case s.Kind == queue.Kafka && s.RedisURL.Empty():
		return nil
	case s.RedisURL.Empty():
		return process.BadSetting("REDIS_URL", "is not set: INGEST_QUEUE=redis carries deliveries over Redis Streams")
	case partitioned(s):
		return streamConfig(s, config(s)).Validate()
	}
	return config(s).Validate()
}

// open makes the client of Redis where its address is set.
func open(b *wiring.Base, s queue.Settings, _ queue.KafkaSettings) (queue.Transport, error) {
	metrics := redisq.NewMetrics(b.Env.Metrics)
	if s.RedisURL.Empty() {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	client, err := redisclient.New(s.RedisURL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	b.Later(func() error { client.Close(); return nil })
	return &Transport{client, b, s, metrics}, nil
}

// partitioned tells whether deliveries lie in partitions.
func partitioned(s queue.Settings) bool { return s.Partitions > 1 }

// config is redisq's view of the settings.
func config(s queue.Settings) redisq.Config {
	c := redisq.NewDefaultConfig(s.RedisURL.Reveal())
	c.StreamKey, c.Group, c.DLQKey = s.StreamKey, s.Group, s.DLQKey
	return c
}

// streamConfig is streamq's view of the settings.
func streamConfig(s queue.Settings, c redisq.Config) streamq.Config {
	return streamq.Config{Config: c, Partitions: s.Partitions}
}

// observed lets the library count in the process's figures and what it exports, and make spans.
func (t *Transport) observed(c streamq.Config) (streamq.Config, error) {
	var err error
	c.Observer, err = mq.NewObserver(t.base.Env.Metrics)
	c.Tracing = mq.NewTracing(otel.GetTracerProvider())
	return c, err
}

// Describe implements queue.Transport.
func (t *Transport) Describe() string {
	if partitioned(t.settings) {
		return "redis topic " + streamq.Topic + " of " + strconv.Itoa(t.settings.Partitions) + " partitions"
	}
	return "redis"
}

// Keeps implements queue.Transport.
func (t *Transport) Keeps(ctx context.Context) (string, error) {
	return redisq.Keeps(ctx, t.Client, t.settings.RedisURL.Reveal())
}

// Publisher implements queue.Transport.
func (t *Transport) Publisher() (ingestq.Publisher, queue.Length, error) {
	var publisher interface {
		ingestq.Publisher
		queue.Length
		Collector() prometheus.Collector
	}
	if partitioned(t.settings) {
		cfg, err := t.observed(streamConfig(t.settings, config(t.settings)))
		if err != nil {
			return nil, nil, err
		}
		topic, err := streamq.NewPublisher(t.Client, cfg, t.base.Env.Log, time.Now, t.metrics)
		if err != nil {
			return nil, nil, err
		}
		if err := t.checkTopic(topic); err != nil {
			return nil, nil, err
		}
		publisher = topic
	} else {
		publisher = redisq.NewPublisher(t.Client, config(t.settings), t.base.Env.Log, time.Now, t.metrics)
	}
	t.base.Watch(publisher.Collector())
	return publisher, publisher, nil
}

// Member implements queue.Transport.
func (t *Transport) Member(m queue.Membership) (ingestq.Consumer, error) {
	c := config(t.settings)
	c.ZombieMaxPending, c.ZombieMinIdle = m.ZombieMaxPending, m.ZombieMinIdle
	c.ZombieInterval, c.ZombieDryRun = m.ZombieInterval, m.ZombieDryRun
	if !partitioned(t.settings) {
		member := redisq.New(t.Client, c, t.base.Env.Log, time.Now, t.metrics)
		t.base.Watch(member.Publisher.Collector())
		return member, nil
	}
	cfg, err := t.observed(streamConfig(t.settings, c))
	if err != nil {
		return nil, err
	}
	member, err := streamq.New(t.Client, cfg, t.base.Env.Log, time.Now, t.metrics)
	if err != nil {
		return nil, err
	}
	t.base.Watch(member.Collector())
	return member, t.checkTopic(member.Publisher)
}

// checkTopic refuses to start with fewer partitions than the topic has. A server that does not answer is no reason not to
// start (design D16): then the topic's own number is used once it does.
func (t *Transport) checkTopic(publisher *streamq.Publisher) error {
	err := publisher.Check(context.Background())
	if errors.Is(err, streamq.ErrFewer) {
		return process.BadSetting("INGEST_STREAM_PARTITIONS", "%v", err)
	}
	if err != nil {
		t.base.Env.Log.Warn("wiring: the topic will be made when Redis answers", slog.Any("error", err))
	}
	return nil
}

// Inspector implements queue.Transport.
func (t *Transport) Inspector() ingestq.Inspector {
	if partitioned(t.settings) {
		return streamq.NewInspector(t.Client, streamConfig(t.settings, config(t.settings)))
	}
	return redisq.NewInspector(t.Client, config(t.settings))
}

// DeadLetters implements queue.Transport; nil: the dead letter stream is off.
func (t *Transport) DeadLetters() ingestq.DeadLetterReader {
	if reader, err := redisq.NewDeadLetters(t.Client, config(t.settings)); err == nil {
		return reader
	}
	return nil
}

// DeadLetterWriter implements queue.Transport.
func (t *Transport) DeadLetterWriter() ingestq.DeadLetterWriter {
	if t.settings.Kind == queue.Redis || t.settings.DLQKey == "" {
		return nil
	}
	return redisq.New(t.Client, config(t.settings), t.base.Env.Log, time.Now, t.metrics)
}
