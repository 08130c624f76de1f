package kafkaq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/pause"
)

// Client asks brokers for metadata and offsets. It is safe for concurrent use, and connects when it is asked.
type Client struct {
	cfg    Config
	lib    sarama.Client
	asking sync.WaitGroup // questions whose caller does not wait any more
}

// NewClient makes a client; no broker has to answer. Close it.
func NewClient(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	lib, err := sarama.NewClient(cfg.Brokers, cfg.client())
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return &Client{cfg: cfg, lib: lib}, nil
}

// Close ends the connections. It waits for questions that nobody waits for any more; their time is bounded.
func (c *Client) Close() error {
	err := c.lib.Close()
	c.asking.Wait()
	return err
}

// ask runs a question of the library, which knows no context. The question goes on for a bounded time if ctx ends first.
func ask[T any](ctx context.Context, c *Client, question func(lib sarama.Client) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	answers := make(chan answer, 1)
	c.asking.Go(func() {
		v, err := question(c.lib)
		answers <- answer{v, err}
	})
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// Probe returns nil when a broker answers metadata, whatever it says about the topic.
func (c *Client) Probe(ctx context.Context) error {
	_, err := ask(ctx, c, func(lib sarama.Client) (struct{}, error) {
		err := lib.RefreshMetadata(c.cfg.Topic)
		for _, answer := range []error{
			sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable, sarama.ErrTopicAuthorizationFailed,
		} {
			if errors.Is(err, answer) {
				return struct{}{}, nil
			}
		}
		return struct{}{}, err
	})
	return failure(ctx, "ask a broker for metadata", err)
}

// open connects a broker unless it is connected.
func open(b *sarama.Broker, cfg *sarama.Config) error {
	if err := b.Open(cfg); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return err
	}
	_, err := b.Connected()
	return err
}

// Partitions are the partitions of a topic, by fresh metadata.
func (c *Client) Partitions(ctx context.Context, topic string) ([]int32, error) {
	return ask(ctx, c, func(lib sarama.Client) ([]int32, error) {
		if err := lib.RefreshMetadata(topic); err != nil {
			return nil, err
		}
		return lib.Partitions(topic)
	})
}

// ends are the first offset that a partition keeps and the one after its last.
func (c *Client) ends(ctx context.Context, topic string, partition int32) (oldest, newest int64, err error) {
	both, err := ask(ctx, c, func(lib sarama.Client) (both [2]int64, err error) {
		if both[0], err = lib.GetOffset(topic, partition, sarama.OffsetOldest); err == nil {
			both[1], err = lib.GetOffset(topic, partition, sarama.OffsetNewest)
		}
		return both, err
	})
	return both[0], both[1], err
}

// border is what is known of one partition; Committed is -1 without a committed offset.
type border struct {
	Partition      int32
	Oldest, Newest int64
	Committed      int64
}

// borders reads log borders and committed offsets of the given partitions of the topic.
func (c *Client) borders(ctx context.Context, partitions []int32) ([]border, error) {
	committed, err := c.committed(ctx, partitions)
	if err != nil {
		return nil, err
	}
	out := make([]border, len(partitions))
	for i, p := range partitions {
		out[i] = border{Partition: p, Committed: committed[p]}
		if out[i].Oldest, out[i].Newest, err = c.ends(ctx, c.cfg.Topic, p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// loadPause is the pause before a coordinator that loads is asked again.
const loadPause = 50 * time.Millisecond

// committed asks the group's coordinator for the offsets. A broker that has just become it, or has just started, loads them
// first: the question is repeated until they are there, for at most callTimeout.
func (c *Client) committed(ctx context.Context, partitions []int32) (map[int32]int64, error) {
	limit := time.Now().Add(callTimeout)
	for {
		out, err := ask(ctx, c, func(lib sarama.Client) (map[int32]int64, error) {
			return committedOffsets(lib, c.cfg.Group, c.cfg.Topic, partitions)
		})
		if !moves(err) || time.Now().After(limit) || !pause.For(ctx, loadPause) {
			return out, err
		}
	}
}

// moves tells the errors of a group whose coordinator is not there yet.
func moves(err error) bool {
	return errors.Is(err, sarama.ErrOffsetsLoadInProgress) || errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable) ||
		errors.Is(err, sarama.ErrNotCoordinatorForConsumer)
}

// committedOffsets asks the group's coordinator; twice, for it may have moved.
func committedOffsets(lib sarama.Client, group, topic string, partitions []int32) (map[int32]int64, error) {
	out, err := committedOnce(lib, group, topic, partitions)
	if err == nil {
		return out, nil
	}
	if err := lib.RefreshCoordinator(group); err != nil {
		return nil, err
	}
	return committedOnce(lib, group, topic, partitions)
}

func committedOnce(lib sarama.Client, group, topic string, partitions []int32) (map[int32]int64, error) {
	coordinator, err := lib.Coordinator(group)
	if err != nil {
		return nil, err
	}
	if err := open(coordinator, lib.Config()); err != nil {
		return nil, err
	}
	request := sarama.NewOffsetFetchRequest(lib.Config().Version, group, map[string][]int32{topic: partitions})
	answer, err := coordinator.FetchOffset(request)
	if err != nil {
		_ = coordinator.Close() // the next question opens it anew
		return nil, err
	}
	if answer.Err != sarama.ErrNoError && answer.Err != sarama.ErrGroupIDNotFound {
		return nil, answer.Err
	}
	out := make(map[int32]int64, len(partitions))
	for _, p := range partitions {
		block := answer.GetBlock(topic, p)
		if block != nil && block.Err == sarama.ErrGroupIDNotFound || answer.Err == sarama.ErrGroupIDNotFound {
			out[p] = -1 // nobody ever joined it
			continue
		}
		if block == nil {
			return nil, sarama.ErrIncompleteResponse
		}
		if block.Err != sarama.ErrNoError {
			return nil, block.Err
		}
		out[p] = block.Offset
	}
	return out, nil
}

// Ping returns nil when a broker answers and knows the topic (readiness).
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.Partitions(ctx, c.cfg.Topic)
	return failure(ctx, "look for topic "+c.cfg.Topic, err)
}

// StreamLength is how many records the topic holds.
func (c *Client) StreamLength(ctx context.Context) (int64, error) {
	stats, err := c.Stats(ctx)
	return stats.Length, err
}

// Stats reads the counts; Lag is what the group has not committed yet.
func (c *Client) Stats(ctx context.Context) (ingestq.Stats, error) {
	lags, err := c.lags(ctx)
	if err != nil {
		return ingestq.Stats{}, failure(ctx, "read the borders of "+c.cfg.Topic, err)
	}
	var out ingestq.Stats
	for _, b := range lags {
		out.Length += b.Newest - b.Oldest
		out.Lag += b.lag()
	}
	return out, nil
}

// lags reads the borders of all partitions.
func (c *Client) lags(ctx context.Context) ([]border, error) {
	partitions, err := c.Partitions(ctx, c.cfg.Topic)
	if err != nil {
		return nil, err
	}
	return c.borders(ctx, partitions)
}

// lag is how many records the group has still to finish.
func (b border) lag() int64 { return b.Newest - min(max(b.Committed, b.Oldest), b.Newest) }

// refusals are the errors by which a broker or the client names a record or our rights. All others say that the broker was
// not to be had, and heal by themselves.
var refusals = []error{
	sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord,
	sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
}

// namesRecord tells a refusal that may mean another record of the same batch: a broker answers for the batch as a whole.
func namesRecord(err error) bool {
	return slices.ContainsFunc(refusals[:3], func(r error) bool { return errors.Is(err, r) })
}

// classify gives an error the form that outbox.Sender promises, but for unknown topics, which want fresh metadata.
func classify(err error) error {
	if slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }) {
		return &outbox.RefusedError{Err: err}
	}
	return err
}

// failure is ingestq.Failure; it names the remedy for a topic that is not there.
func failure(ctx context.Context, doing string, err error) error {
	if ctx.Err() == nil && !errors.Is(err, ingestq.ErrUnavailable) && errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		err = fmt.Errorf("%w: the topic does not exist (millweir kafka init makes it)", ingestq.ErrUnavailable)
	}
	return ingestq.Failure(ctx, doing, err)
}
