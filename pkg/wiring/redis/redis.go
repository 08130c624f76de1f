// Package redis links the Redis transport: deliveries of documents lie in one stream, or with INGEST_STREAM_PARTITIONS above 1 in the
// partitions of a topic, those of workflow tasks in a stream of their own.
package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/jointq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/streamq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/ratelimit/redislimit"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/telemetry/mq"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/queue"
	"github.com/millweir/millweir/pkg/workflow"
)

func init() { queue.Register(queue.Link{Kind: queue.Redis, Validate: validate, Open: open}) }

// Transport is Redis, which REDIS_URL names. With INGEST_QUEUE=kafka it keeps what an earlier transport has left.
type Transport struct {
	Client rueidis.Client

	base     *wiring.Base
	settings queue.Settings
	metrics  *redisq.Metrics
}

var (
	_ queue.Transport = (*Transport)(nil)
	_ queue.Viewer    = (*Transport)(nil)
	_ queue.Limiters  = (*Transport)(nil)
)

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
		return errors.Join(streamConfig(s, config(s)).Validate(), validateTasks(s))
	}
	return errors.Join(config(s).Validate(), validateTasks(s))
}

// validateTasks judges the name of the stream of workflow tasks.
func validateTasks(s queue.Settings) error {
	switch {
	case s.TaskKey == s.StreamKey:
		return process.BadSetting("TASK_STREAM_KEY", "is %q, as INGEST_STREAM_KEY: they must differ", s.TaskKey)
	case s.TaskKey == s.DLQKey:
		return process.BadSetting("TASK_STREAM_KEY", "is %q, as INGEST_REDIS_DLQ_STREAM_KEY: they must differ", s.TaskKey)
	}
	return redisq.CheckKey(s.RedisURL.Reveal(), "TASK_STREAM_KEY", s.TaskKey)
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

// Version implements queue.Transport.
func (t *Transport) Version(ctx context.Context) (product, version string, err error) {
	return redisq.Version(ctx, t.Client, t.settings.RedisURL.Reveal())
}

// taskGroup is the group of the stream of workflow tasks (contract §5).
const taskGroup = "persist-workers"

// tasks is the view of a stream of workflow tasks, whose dead letter stream and treatment of zombies are those of the documents'.
func tasks(s queue.Settings, c redisq.Config) redisq.Config {
	c.StreamKey, c.Group, c.MaxUnfinished = s.TaskKey, taskGroup, s.TaskMaxLen
	return c
}

// isTask tells which tasks lie in the stream of workflow tasks.
func isTask(taskType string) bool { return taskType == workflow.Type }

// counted is a publisher, or a member, whose streams are counted.
type counted interface {
	jointq.Publishing
	Streams(ctx context.Context) ([]redisq.StreamStats, error)
}

// watch shows the counts of all streams.
func (t *Transport) watch(all ...counted) {
	t.base.Watch(redisq.NewCollector(func(ctx context.Context) (streams []redisq.StreamStats, err error) {
		for _, one := range all {
			some, err := one.Streams(ctx)
			if err != nil {
				return nil, err
			}
			streams = append(streams, some...)
		}
		return streams, nil
	}, time.Now))
}

// Publisher implements queue.Transport.
func (t *Transport) Publisher() (ingestq.Publisher, queue.Length, error) {
	c := config(t.settings)
	var documents counted = redisq.NewPublisher(t.Client, c, t.base.Env.Log, time.Now, t.metrics)
	if partitioned(t.settings) {
		cfg, err := t.observed(streamConfig(t.settings, c))
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
		documents = topic
	}
	workflows := redisq.NewPublisher(t.Client, tasks(t.settings, c), t.base.Env.Log, time.Now, t.metrics)
	t.watch(documents, workflows)
	joint := jointq.NewPublisher(documents, workflows, isTask)
	return joint, joint, nil
}

// Member implements queue.Transport.
func (t *Transport) Member(m queue.Membership) (ingestq.Consumer, error) {
	c := config(t.settings)
	c.ZombieMaxPending, c.ZombieMinIdle = m.ZombieMaxPending, m.ZombieMinIdle
	c.ZombieInterval, c.ZombieDryRun = m.ZombieInterval, m.ZombieDryRun
	var documents interface {
		jointq.Member
		counted
	} = redisq.New(t.Client, c, t.base.Env.Log, time.Now, t.metrics)
	if partitioned(t.settings) {
		cfg, err := t.observed(streamConfig(t.settings, c))
		if err != nil {
			return nil, err
		}
		member, err := streamq.New(t.Client, cfg, t.base.Env.Log, time.Now, t.metrics)
		if err != nil {
			return nil, err
		}
		if err := t.checkTopic(member.Publisher); err != nil {
			return nil, err
		}
		documents = member
	}
	workflows := redisq.NewPart(t.Client, tasks(t.settings, c), redisq.Part{Member: documents.Name(), Beats: t.settings.TaskKey},
		t.base.Env.Log, time.Now, t.metrics)
	t.watch(documents, workflows)
	return jointq.New(documents, workflows, jointq.Options{
		Second: isTask, SkipFirst: m.SkipDocuments, SkipSecond: m.SkipWorkflows,
		Cluster: t.Client.Mode() == rueidis.ClientModeCluster, Log: t.base.Env.Log,
	}), nil
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

// Limiter implements queue.Limiters.
func (t *Transport) Limiter(prefix string, limits ...ratelimit.Limit) ratelimit.Limiter {
	return ratelimit.NewFallback(redislimit.New(t.Client, prefix, limits...), ratelimit.NewLocal(time.Now, limits...), t.base.Env.Log, time.Now)
}

// WriteView implements queue.Viewer.
func (t *Transport) WriteView(ctx context.Context, key string, of map[string]time.Time) error {
	return redisq.WriteView(ctx, t.Client, key, of)
}

// Inspector implements queue.Transport.
func (t *Transport) Inspector() ingestq.Inspector {
	c := config(t.settings)
	var documents ingestq.Inspector = redisq.NewInspector(t.Client, c)
	if partitioned(t.settings) {
		documents = streamq.NewInspector(t.Client, streamConfig(t.settings, c))
	}
	return jointq.NewInspector(documents, redisq.NewInspector(t.Client, tasks(t.settings, c)))
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
