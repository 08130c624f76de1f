package streammq

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/admin"
	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/deadletter"
	"github.com/millweir/millweir/pkg/streammq/internal/produce"
)

// MQ is the queue over one Redis, Sentinel set or cluster. It is safe for concurrent use.
type MQ struct{ core *core.Core }

// New makes an MQ over a client, which the caller closes after all that uses it. It does not talk to the server; see Check.
// Its error wraps ErrConfig.
func New(client rueidis.Client, cfg Config) (*MQ, error) {
	c, err := core.New(client, cfg)
	if err != nil {
		return nil, err
	}
	return &MQ{c}, nil
}

// ForLayout is this queue for topics of another layout, over the same client: LayoutCluster's keys work on one Redis too,
// LayoutSingle's not on a cluster. Error: ErrLayout.
func (q *MQ) ForLayout(layout Layout) (*MQ, error) {
	c, err := q.core.ForLayout(layout)
	if err != nil {
		return nil, err
	}
	return &MQ{c}, nil
}

// Check asks the server whether this queue can be durable on it; call it at start.
// Errors: ErrServer, ErrEviction, ErrLayout, ErrUnavailable.
func (q *MQ) Check(ctx context.Context) error { return q.core.Check(ctx) }

// CreateTopic makes a topic, or lets the partitions of an existing one grow to t.Partitions. Producers of other
// processes learn of growth within Config.MetaRefresh, groups within their rebalance interval; keys whose partition
// changes by it keep their order only among messages from then on. It returns the number of partitions that the topic
// has now, which is larger than t.Partitions if the topic was.
// Errors: ErrTopicName, ErrPartitions, ErrLayout, ErrFull, ErrUnavailable.
func (q *MQ) CreateTopic(ctx context.Context, t Topic) (int, error) {
	return q.core.Topics.Create(ctx, t)
}

// Partitions is the number of partitions that a topic has now. Errors: ErrUnknownTopic, ErrLayout, ErrUnavailable.
func (q *MQ) Partitions(ctx context.Context, topic string) (int, error) {
	return q.core.Topics.Partitions(ctx, topic)
}

// Topics lists all topics by name, those of the other layout too. A topic whose meta cannot be read has no Partitions.
// Error: ErrUnavailable.
func (q *MQ) Topics(ctx context.Context) ([]TopicInfo, error) { return q.core.Topics.List(ctx) }

// Topic is what the registry knows of one topic. Errors: ErrUnknownTopic, ErrMalformed, ErrUnavailable.
func (q *MQ) Topic(ctx context.Context, topic string) (TopicInfo, error) {
	return q.core.Topics.Info(ctx, topic)
}

// Statuses are those of messages of topics with status, by uuid. One that is missing is unknown, or has expired.
// Errors: ErrMalformed, ErrUnavailable.
func (q *MQ) Statuses(ctx context.Context, uuids ...string) (map[string]Status, error) {
	return q.core.Statuses(ctx, uuids...)
}

// OwnStatus is the status of a user's own message: one that was published with HeaderUser. found is false for all others,
// whether they exist or not.
// Errors: ErrMalformed, ErrUnavailable.
func (q *MQ) OwnStatus(ctx context.Context, user, uuid string) (s Status, found bool, err error) {
	return q.core.OwnStatus(ctx, user, uuid)
}

// NewProducer makes a producer; nil is NewHash().
func (q *MQ) NewProducer(p Partitioner) *Producer { return produce.NewProducer(q.core, p) }

// NewStreamProducer makes a producer for the single stream with that key. With status each message has one, as on a topic
// with Topic.Status; its subscribers must have SubscriberConfig.Status too. Error: ErrStreamKey.
func (q *MQ) NewStreamProducer(key string, status bool) (*StreamProducer, error) {
	return produce.NewStreamProducer(q.core, key, status)
}

// NewFastStreamProducer is NewStreamProducer for a stream that FastStream reads. Who sets HeaderContentType tells FastStream
// what a payload is (see Encode); without it FastStream takes what can be read as JSON for that, and all else for bytes.
// Errors: ErrStreamKey, ErrConfig.
func (q *MQ) NewFastStreamProducer(key string, format Format, status bool) (*StreamProducer, error) {
	return produce.NewFastStreamProducer(q.core, key, format, status)
}

// NewRequester makes a requester over a partitioner (nil is NewHash); Run makes it read replies.
// Errors: those of RequesterConfig.Validate.
func (q *MQ) NewRequester(cfg RequesterConfig, p Partitioner) (*Requester, error) {
	return produce.NewRequester(q.core, cfg, p)
}

// NewSubscriber makes a subscriber; Run makes it work. Errors: those of SubscriberConfig.Validate.
func (q *MQ) NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	return consume.NewSubscriber(q.core, cfg)
}

// NewConsumer makes a consumer; Run makes it work. Errors: those of ConsumerConfig.Validate.
func (q *MQ) NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	return consume.NewConsumer(q.core, cfg)
}

// Admin gives an operator's access to a topic.
func (q *MQ) Admin(topic string) *Admin { return admin.New(q.core, topic) }

// StreamAdmin gives an operator's access to a single stream. It has one partition, number 0, and no leases.
func (q *MQ) StreamAdmin(streamKey string) *Admin { return admin.NewStream(q.core, streamKey) }

// GroupStats tells how a group stands on each partition of a topic; see Admin.GroupStats.
func (q *MQ) GroupStats(ctx context.Context, topic, group string) ([]PartitionStats, error) {
	return q.Admin(topic).GroupStats(ctx, group)
}

// Pending lists a group's pending entries of all partitions in one order; see Admin.Pending.
func (q *MQ) Pending(ctx context.Context, topic, group string, query PendingQuery) ([]PendingEntry, error) {
	return q.Admin(topic).Pending(ctx, group, query)
}

// Trim removes what the retention does not keep, payloads beside the stream with it, and returns the number of entries;
// see Admin.Trim.
func (q *MQ) Trim(ctx context.Context, topic string, r Retention) (int, error) {
	total := 0
	parts, err := q.Admin(topic).Trim(ctx, r, false)
	for _, p := range parts {
		total += p.Entries
	}
	return total, err
}

// Letters gives access to a topic's dead letters.
func (q *MQ) Letters(topic string) *Letters { return deadletter.New(q.core, topic) }

// StreamLetters gives access to a single stream's dead letters.
func (q *MQ) StreamLetters(streamKey string) *Letters { return deadletter.OfStream(q.core, streamKey) }

// NamedLetters gives access to the dead letters of a SubscriberConfig.DeadLetterStream, of all topics and streams whose
// letters go there. On a cluster, where it lies in a slot of its own, a replay is two steps, the message first: a crash
// between them lets the letter be replayed once more. On one Redis it is one step, as everywhere else.
func (q *MQ) NamedLetters(key string) *Letters { return deadletter.Named(q.core, key) }
