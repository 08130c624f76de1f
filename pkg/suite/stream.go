package suite

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"

	"github.com/millweir/millweir/pkg/ingest/query"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/streamq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/telemetry/mq"
)

// Deliveries over Redis lie in one stream, or with INGEST_STREAM_PARTITIONS above 1 in the partitions of a topic.

// streamPublisher is what adds deliveries, and counts them.
type streamPublisher interface {
	ingestq.Publisher
	query.QueueStats
	Collector() prometheus.Collector
}

// partitioned tells whether deliveries lie in partitions.
func (q Queue) partitioned() bool { return q.Partitions > 1 }

// streamConfig is streamq's view of the settings.
func streamConfig(q Queue, c redisq.Config) streamq.Config {
	return streamq.Config{Config: c, Partitions: q.Partitions}
}

// observed lets the library count in the process's figures and what it exports, and make spans.
func (p *Parts) observed(c streamq.Config) (streamq.Config, error) {
	var err error
	c.Observer, err = mq.NewObserver(p.Env.Metrics)
	c.Tracing = mq.NewTracing(otel.GetTracerProvider())
	return c, err
}

// redisPublisher makes what adds deliveries.
func (p *Parts) redisPublisher(q Queue) (streamPublisher, error) {
	if !q.partitioned() {
		return redisq.NewPublisher(p.Redis, queueConfig(q), p.Env.Log, time.Now, p.metrics), nil
	}
	cfg, err := p.observed(streamConfig(q, queueConfig(q)))
	if err != nil {
		return nil, err
	}
	publisher, err := streamq.NewPublisher(p.Redis, cfg, p.Env.Log, time.Now, p.metrics)
	if err != nil {
		return nil, err
	}
	return publisher, p.checkTopic(publisher)
}

// redisMember makes a member of the workers' group.
func (p *Parts) redisMember(w *Worker) (ingestq.Consumer, error) {
	q := w.Shared.Queue
	if !q.partitioned() {
		member := redisq.New(p.Redis, memberConfig(q, w.Work), p.Env.Log, time.Now, p.metrics)
		p.watch(member.Publisher.Collector())
		return member, nil
	}
	cfg, err := p.observed(streamConfig(q, memberConfig(q, w.Work)))
	if err != nil {
		return nil, err
	}
	member, err := streamq.New(p.Redis, cfg, p.Env.Log, time.Now, p.metrics)
	if err != nil {
		return nil, err
	}
	p.watch(member.Collector())
	return member, p.checkTopic(member.Publisher)
}

// checkTopic refuses to start with fewer partitions than the topic has. A server that does not answer is no reason not to
// start (design D16): then the topic's own number is used once it does.
func (p *Parts) checkTopic(publisher *streamq.Publisher) error {
	err := publisher.Check(context.Background())
	if errors.Is(err, streamq.ErrFewer) {
		return process.BadSetting("INGEST_STREAM_PARTITIONS", "%v", err)
	}
	if err != nil {
		p.Env.Log.Warn("suite: the topic will be made when Redis answers", slog.Any("error", err))
	}
	return nil
}

// queueInspector looks at the deliveries from outside.
func queueInspector(p *Parts, q Queue) ingestq.Inspector {
	if q.partitioned() {
		return streamq.NewInspector(p.Redis, streamConfig(q, queueConfig(q)))
	}
	return redisq.NewInspector(p.Redis, queueConfig(q))
}
