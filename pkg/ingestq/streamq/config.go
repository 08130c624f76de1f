package streamq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/streammq"
)

// Topic is the name of contract §6.
const Topic = "ingest-tasks"

// beats is what the heartbeat keys of members begin with, for all partitions; on a cluster each partition has its own.
const beats = "stream:topic:" + Topic

const (
	lease     = 5 * time.Second // of a partition: how long the entries of a killed process wait for another owner
	renew     = time.Second
	rebalance = time.Second
	restAfter = 5 * time.Second // without a Read the partitions go to members that do read
)

// Config is what an operator sets.
type Config struct {
	// Config of the single stream, whose group, dead letter stream and treatment of zombies are the partitions' too.
	redisq.Config
	// Partitions is the number that the topic has at least.
	Partitions int
	// Observer receives what the library counts; nil: nobody. mq.NewMetrics makes one.
	Observer streammq.Observer
	// Tracing makes spans of what goes to the topic and comes from it; nil: nobody. mq.NewTracing makes one.
	Tracing Tracing
}

// Tracing makes spans of the topic's messages, which carry their upload's context in the header traceparent.
type Tracing interface {
	// PublishBatch publishes by p under a span.
	PublishBatch(ctx context.Context, p *streammq.Producer, topic string, ms []streammq.Message) ([]streammq.Receipt, error)
	// Received tells what a poll that began at a time has answered.
	Received(ctx context.Context, began time.Time, ds []*streammq.Delivery)
}

// untraced is the Tracing of nobody.
type untraced struct{}

func (untraced) PublishBatch(ctx context.Context, p *streammq.Producer, topic string, ms []streammq.Message) ([]streammq.Receipt, error) {
	return p.PublishBatch(ctx, topic, ms)
}

func (untraced) Received(context.Context, time.Time, []*streammq.Delivery) {}

// Validate names every setting that is out of its range.
func (c Config) Validate() error {
	var errs []error
	if c.Partitions < 1 || c.Partitions > streammq.MaxPartitions {
		errs = append(errs, fmt.Errorf("INGEST_STREAM_PARTITIONS: %d, must be 1 to %d", c.Partitions, streammq.MaxPartitions))
	}
	if err := c.consumer("member").Validate(); err != nil {
		errs = append(errs, fmt.Errorf("INGEST_STREAM_GROUP: %q with INGEST_STREAM_PARTITIONS above 1: %w", c.Group, err))
	}
	return errors.Join(append(errs, c.Config.Validate())...)
}

// consumer is streammq's view of the settings. Nothing is trimmed and nobody is removed by it: the runner and this package
// do that by the rules of the single stream.
func (c Config) consumer(member string) streammq.ConsumerConfig {
	s := streammq.NewDefaultConsumerConfig(Topic, c.Group)
	s.Member, s.Lease, s.Renew, s.Rebalance, s.RestAfter = member, lease, renew, rebalance, restAfter
	s.Retention, s.Janitor = streammq.Retention{}, streammq.JanitorConfig{}
	s.MaxUnanswered = 0                 // the row counts attempts and crashes, and decides what becomes a dead letter
	s.RetryMode = streammq.RetryInPlace // nothing waits apart, so nothing has to be moved
	return s
}

// queue is the library over the client.
func (c Config) queue(client rueidis.Client, log *slog.Logger, now func() time.Time) (*streammq.MQ, error) {
	s := streammq.NewDefaultConfig()
	s.Log, s.Now, s.Layout = log, now, Layout(client)
	if c.Observer != nil {
		s.Observer = c.Observer
	}
	s.InlineMax = s.MaxPayload // an envelope is small enough to lie in its entry, where commands past streammq find it
	return streammq.New(client, s)
}

// Layout is how keys are named on the servers of a client.
func Layout(client rueidis.Client) streammq.Layout {
	if client.Mode() == rueidis.ClientModeCluster {
		return streammq.LayoutCluster
	}
	return streammq.LayoutSingle
}

// part is redisq's view of one partition.
func (c Config) part(partition int) redisq.Config {
	p := c.Config
	p.StreamKey = streammq.StreamKey(Topic, partition)
	return p
}
