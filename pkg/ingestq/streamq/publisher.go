package streamq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/streammq/stream"
	pb "github.com/millweir/millweir/proto"
)

const (
	pipelineLength = 500     // entries of one pipeline
	pipelineBytes  = 4 << 20 // of entries in one pipeline, so that large ones too go out within callTimeout
)

// Publisher adds deliveries to the topic and is no member of its group. It is safe for concurrent use.
type Publisher struct {
	client   rueidis.Client
	mq       *streammq.MQ
	producer *streammq.Producer
	cfg      Config
	member   string // whose queues the parts are
	log      *slog.Logger
	now      func() time.Time
	metrics  *redisq.Metrics

	mu     sync.Mutex
	list   []*part // the partitions that the topic has now
	old    *part   // the single stream
	there  bool    // the single stream has the group
	looked time.Time
	warned bool
}

var _ ingestq.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher on a client that the caller closes. cfg must be valid; the rest as for redisq.NewPublisher.
func NewPublisher(client rueidis.Client, cfg Config, log *slog.Logger, now func() time.Time, metrics *redisq.Metrics) (*Publisher, error) {
	mq, err := cfg.queue(client, log, now)
	if err != nil {
		return nil, err
	}
	return newPublisher(client, mq, cfg, "publisher", log, now, metrics), nil
}

func newPublisher(client rueidis.Client, mq *streammq.MQ, cfg Config, member string, log *slog.Logger, now func() time.Time, metrics *redisq.Metrics) *Publisher {
	if metrics == nil {
		metrics = redisq.NewMetrics(nil)
	}
	if cfg.Tracing == nil {
		cfg.Tracing = untraced{}
	}
	return &Publisher{
		client: client, mq: mq, producer: mq.NewProducer(nil), cfg: cfg, member: member, log: log, now: now, metrics: metrics,
		old: &part{redisq.NewPart(client, cfg.Config, redisq.Part{Member: member, Beats: cfg.StreamKey}, log, now, metrics), single},
	}
}

// Check makes the topic, if the server answers. Errors: ErrFewer; ingestq.ErrUnavailable, after which the topic is made later.
func (p *Publisher) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := makeTopic(ctx, p.mq, p.cfg.Partitions)
	return err
}

// Destination implements ingestq.Described.
func (p *Publisher) Destination(string) (system, name string) { return "redis", Topic }

// Publish implements ingestq.Publisher.
func (p *Publisher) Publish(ctx context.Context, envelopes []*pb.TaskEnvelope) ([]string, error) {
	ids := make([]string, len(envelopes))
	if _, err := p.all(ctx); err != nil {
		return ids, err
	}
	var errs []error
	var messages []streammq.Message
	var places []int // of the messages' ids
	for i, e := range envelopes {
		m, err := message(e)
		if err != nil {
			errs = append(errs, fmt.Errorf("publish task %q: %w", e.GetTaskId(), err))
			continue
		}
		messages, places = append(messages, m), append(places, i)
	}
	size := func(i int) int { return len(messages[i].Payload) }
	for from, to := range ingestq.Portions(len(messages), pipelineLength, pipelineBytes, size) {
		errs = append(errs, p.send(ctx, messages[from:to], places[from:to], ids))
	}
	return ids, errors.Join(errs...)
}

// send adds messages in one pipeline and puts their ids into their places.
func (p *Publisher) send(ctx context.Context, messages []streammq.Message, places []int, ids []string) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	receipts, err := p.cfg.Tracing.PublishBatch(call, p.producer, Topic, messages)
	for i, r := range receipts {
		if r.ID != "" {
			ids[places[i]] = idOf(r.Partition, r.ID)
		}
	}
	return ingestq.Failure(ctx, fmt.Sprintf("publish %d deliveries to %s", len(messages), Topic), err)
}

// Ping returns nil when Redis answers, of a cluster the nodes of all partitions.
func (p *Publisher) Ping(ctx context.Context) error {
	if !p.cluster() {
		return p.old.Publisher.Ping(ctx)
	}
	all, err := p.all(ctx)
	if err != nil {
		return err
	}
	return each(all, func(one *part) error { return one.Publisher.Ping(ctx) })
}

// StreamLength counts the entries of all partitions, and of the single stream if it is there.
func (p *Publisher) StreamLength(ctx context.Context) (int64, error) {
	stats, err := p.Stats(ctx)
	return stats.Length, err
}

// Stats sums the counts up.
func (p *Publisher) Stats(ctx context.Context) (ingestq.Stats, error) {
	streams, err := p.Streams(ctx)
	if err != nil {
		return ingestq.Stats{Lag: -1}, err
	}
	all := make([]ingestq.Stats, len(streams))
	for i, s := range streams {
		all[i] = s.Stats
	}
	return ingestq.Sum(all...), nil
}

// Streams are the counts of each stream.
func (p *Publisher) Streams(ctx context.Context) ([]redisq.StreamStats, error) {
	all, err := p.all(ctx)
	if err != nil {
		return nil, err
	}
	return gather(all, func(one *part) (redisq.StreamStats, error) {
		some, err := one.Streams(ctx)
		return some[0], err
	})
}

// Locate implements ingestq.Locator.
func (p *Publisher) Locate(ctx context.Context, id string) (*ingestq.Place, error) {
	partition, entry, ok := splitID(id)
	if !ok {
		return nil, nil
	}
	one, err := p.at(ctx, partition)
	if one == nil {
		return nil, err
	}
	return one.Locate(ctx, entry)
}

const (
	lookEvery   = 5 * time.Second // at the topic's number of partitions, and for the single stream
	callTimeout = 3 * time.Second // of one command or pipeline that does not block
	workers     = 16              // partitions that are worked on at once; their commands share pipelines
)

// ErrFewer says that fewer partitions are asked for than the topic has.
var ErrFewer = errors.New("partitions of a topic can only grow")

// part is one stream with the queue that works on it.
type part struct {
	*redisq.Queue
	number int
}

// all returns the partitions, and the single stream first if it is there. Error: ingestq.ErrUnavailable.
func (p *Publisher) all(ctx context.Context) ([]*part, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.look(ctx); err != nil && len(p.list) == 0 {
		return nil, err
	}
	if p.there {
		return append([]*part{p.old}, p.list...), nil
	}
	return p.list[:len(p.list):len(p.list)], nil
}

// cluster tells whether partitions lie on several nodes.
func (p *Publisher) cluster() bool { return Layout(p.client) == streammq.LayoutCluster }

// at is the queue of a part; nil when there is none.
func (p *Publisher) at(ctx context.Context, number int) (*part, error) {
	all, err := p.all(ctx)
	if i := slices.IndexFunc(all, func(one *part) bool { return one.number == number }); i >= 0 {
		return all[i], nil
	}
	return nil, err
}

// look makes the topic if it is missing, and sees whether it has grown and whether the single stream is there.
// A server that does not answer is asked again after the same time, unless nothing is known yet.
func (p *Publisher) look(ctx context.Context) error {
	now := p.now()
	if age := now.Sub(p.looked); !p.looked.IsZero() && age >= 0 && age < lookEvery {
		return nil
	}
	if len(p.list) > 0 {
		p.looked = now
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := makeTopic(ctx, p.mq, p.cfg.Partitions)
	if errors.Is(err, ErrFewer) {
		if !p.warned {
			p.log.ErrorContext(ctx, "streamq: the topic has more partitions than are asked for; all are used", slog.Any("error", err))
		}
		p.warned, err = true, nil
	}
	if err != nil {
		return err
	}
	there, err := hasGroup(ctx, p.client, p.cfg.StreamKey, p.cfg.Group)
	if err != nil {
		return err
	}
	for i := len(p.list); i < n; i++ {
		q := redisq.NewPart(p.client, p.cfg.part(i), redisq.Part{Member: p.member, Beats: beats, Codec: codec{i, p.now}}, p.log, p.now, p.metrics)
		p.list = append(p.list, &part{q, i})
	}
	p.there, p.looked = there, now
	return nil
}

// makeTopic makes the topic, or lets it grow, and returns how many partitions it has. Errors: ErrFewer beside that number,
// streammq.ErrLayout, ingestq.ErrUnavailable.
func makeTopic(ctx context.Context, mq *streammq.MQ, partitions int) (int, error) {
	n, err := mq.CreateTopic(ctx, streammq.Topic{Name: Topic, Partitions: partitions})
	if err != nil {
		return 0, ingestq.Failure(ctx, "make topic "+Topic, err)
	}
	if n > partitions {
		return n, fmt.Errorf("INGEST_STREAM_PARTITIONS is %d and topic %s has %d: %w; set it to %d", partitions, Topic, n, ErrFewer, n)
	}
	return n, nil
}

// hasGroup tells whether a stream has a group.
func hasGroup(ctx context.Context, client rueidis.Client, key, group string) (bool, error) {
	groups, err := stream.Groups(ctx, client, key)
	if answer, ok := rueidis.IsRedisErr(err); ok && !answer.IsClusterDown() && !answer.IsLoading() {
		return false, nil // no such key
	}
	if err != nil {
		return false, ingestq.Failure(ctx, "look at stream "+key, err)
	}
	return slices.ContainsFunc(groups, func(g stream.Group) bool { return g.Name == group }), nil
}

// each works on parts, some at once, and joins their errors.
func each(all []*part, do func(p *part) error) error {
	_, err := gather(all, func(p *part) (struct{}, error) { return struct{}{}, do(p) })
	return err
}

// gather is each for what returns something, which it returns in the order of the parts.
func gather[T any](all []*part, do func(p *part) (T, error)) ([]T, error) {
	got, errs := make([]T, len(all)), make([]error, len(all))
	turns := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i, p := range all {
		turns <- struct{}{}
		wg.Go(func() {
			got[i], errs[i] = do(p)
			<-turns
		})
	}
	wg.Wait()
	return got, errors.Join(errs...)
}
