package streammq

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// topicMeta is what a process knows of a topic.
type topicMeta struct {
	partitions int
	status     bool   // messages have one
	born       string // the server's bornKey at that time
	read       time.Time
}

// topicCache spares a look at the meta for every message.
type topicCache struct {
	mu    sync.Mutex
	known map[string]topicMeta
}

func (c *topicCache) get(topic string) (topicMeta, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.known[topic]
	return m, ok
}

func (c *topicCache) put(topic string, m topicMeta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[topic] = m
}

func (c *topicCache) forget(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, topic)
}

// CreateTopic makes a topic, or lets its partitions grow; see MQ.CreateTopic.
func (q *core) CreateTopic(ctx context.Context, t Topic) (int, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	now, status := q.cfg.Now(), ""
	if t.Status {
		status = statusOn
	}
	doing := "create topic " + t.Name
	answer, err := q.Run(ctx, q.scripts.TopicCreate, []string{metaKey(t.Name)},
		strconv.Itoa(t.Partitions), string(q.cfg.Layout), strconv.FormatInt(now.UnixMilli(), 10), status).ToArray()
	if err != nil {
		return 0, failure(ctx, doing, err)
	}
	partitions, layout, err := decodeMeta(answer[0], answer[1])
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	if layout != q.cfg.Layout {
		return 0, fmt.Errorf("topic %s has layout %q: %w: %q is set", t.Name, layout, ErrLayout, q.cfg.Layout)
	}
	if deleting, err := answer[3].AsInt64(); err != nil || deleting == 1 {
		return 0, fmt.Errorf("topic %s is being deleted: %w: delete it again to end that", t.Name, ErrUnknownTopic)
	}
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	results := q.Client.DoMulti(ctx, append(q.register(t.Name, partitions), q.Client.B().Sadd().Key(registryKey).Member(t.Name).Build())...)
	if err := stream.FirstError(results); err != nil {
		return 0, failure(ctx, doing, err)
	}
	if err := q.makeStreams(ctx, t.Name, all...); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	born, err := q.born(ctx)
	if err != nil {
		return 0, failure(ctx, doing, err)
	}
	q.topics.put(t.Name, topicMeta{partitions: partitions, status: isOn(answer[2]), born: born, read: now})
	return partitions, nil
}

// register are the commands that write the topic's partitionsKey; the numbers that earlier versions wrote go.
func (q *core) register(topic string, partitions int) rueidis.Commands {
	streams, numbers := make([]string, partitions), make([]string, partitions)
	for i := range streams {
		streams[i], numbers[i] = StreamKey(topic, i), strconv.Itoa(i)
	}
	return rueidis.Commands{
		q.Client.B().Sadd().Key(partitionsKey(topic)).Member(streams...).Build(),
		q.Client.B().Srem().Key(partitionsKey(topic)).Member(numbers...).Build(),
	}
}

// Partitions is the number of partitions that a topic has now. Errors: ErrUnknownTopic, ErrLayout, ErrUnavailable.
func (q *core) Partitions(ctx context.Context, topic string) (int, error) {
	if err := checkName(topic, ErrTopicName); err != nil {
		return 0, err
	}
	results := q.Client.DoMulti(ctx,
		q.Client.B().Hmget().Key(metaKey(topic)).Field("partitionCount", "layout", "status", metaDeleting).Build(),
		q.Client.B().Get().Key(bornKey).Build())
	if err := stream.FirstError(results); err != nil {
		return 0, failure(ctx, "read topic "+topic, err)
	}
	born, _ := results[1].ToString() // nil: none
	fields, err := results[0].ToArray()
	switch {
	case err != nil:
		return 0, failure(ctx, "read topic "+topic, err)
	case fields[0].IsNil():
		return q.heal(ctx, topic, born)
	case !fields[3].IsNil():
		q.topics.forget(topic)
		return 0, fmt.Errorf("topic %s is being deleted: %w", topic, ErrUnknownTopic)
	}
	partitions, layout, err := decodeMeta(fields[0], fields[1])
	if err != nil {
		return 0, fmt.Errorf("topic %s: %w", topic, err)
	}
	if layout != q.cfg.Layout {
		return 0, fmt.Errorf("topic %s has layout %q: %w: %q is set", topic, layout, ErrLayout, q.cfg.Layout)
	}
	if born == "" {
		if born, err = q.born(ctx); err != nil {
			return 0, failure(ctx, "read topic "+topic, err)
		}
	}
	q.topics.put(topic, topicMeta{partitions: partitions, status: isOn(fields[2]), born: born, read: q.cfg.Now()})
	return partitions, nil
}

// born reads the server's bornKey, and makes it if need be.
func (q *core) born(ctx context.Context) (string, error) {
	results := q.Client.DoMulti(ctx,
		q.Client.B().Set().Key(bornKey).Value(newUUID(q.cfg.Now())).Nx().Build(), q.Client.B().Get().Key(bornKey).Build())
	if err := stream.FirstError(results); err != nil {
		return "", err
	}
	return results[1].ToString()
}

// makeStreams lets the streams of partitions be there. Errors: ErrUnknownTopic, ErrFull, ErrUnavailable.
func (q *core) makeStreams(ctx context.Context, topic string, partitions ...int) error {
	calls := make([]stream.Call, len(partitions))
	for i, partition := range partitions {
		keys := []string{q.source(topic, partition).stream()}
		if q.cfg.Layout == LayoutSingle {
			keys = append(keys, metaKey(topic))
		}
		calls[i] = stream.Call{Script: q.scripts.StreamMake, Keys: keys}
	}
	for _, r := range q.RunAll(ctx, calls) {
		code, err := r.AsInt64()
		if err != nil {
			return failure(ctx, "make the streams of topic "+topic, err)
		}
		if code < 0 {
			q.topics.forget(topic)
			return fmt.Errorf("topic %s: %w", topic, ErrUnknownTopic)
		}
	}
	return nil
}

// heal makes a topic again that this process knew: the server was flushed. What was not known, or is gone from the
// server that it was made on, does not exist.
func (q *core) heal(ctx context.Context, topic, born string) (int, error) {
	known, ok := q.topics.get(topic)
	if !ok || known.born == born {
		q.topics.forget(topic)
		return 0, fmt.Errorf("topic %s: %w", topic, ErrUnknownTopic)
	}
	partitions, err := q.CreateTopic(ctx, Topic{Name: topic, Partitions: known.partitions, Status: known.status})
	if err == nil {
		q.observe(Event{Kind: EventHealed, Topic: topic, Partition: -1, Count: 1})
		q.cfg.Log.WarnContext(ctx, "streammq: topic was lost and is made again", slog.String("topic", topic), slog.Int("partitions", partitions))
	}
	return partitions, err
}

// partitions is Partitions, at most Config.MetaRefresh old. What is known serves on while the server does not answer.
func (q *core) partitions(ctx context.Context, topic string) (int, error) {
	known, ok := q.topics.get(topic)
	if ok && q.cfg.Now().Sub(known.read) < q.cfg.MetaRefresh {
		return known.partitions, nil
	}
	return q.Partitions(ctx, topic)
}

const statusOn = "1" // in the meta's field status

func isOn(m rueidis.RedisMessage) bool {
	text, err := m.ToString()
	return err == nil && text == statusOn
}

func decodeMeta(partitions, layout rueidis.RedisMessage) (int, Layout, error) {
	n, err := partitions.AsInt64()
	if err != nil || n < 1 || n > MaxPartitions {
		return 0, "", fmt.Errorf("partitionCount: %w: 1 to %d", ErrMalformed, MaxPartitions)
	}
	if layout.IsNil() {
		return int(n), LayoutSingle, nil
	}
	name, err := layout.ToString()
	return int(n), Layout(name), err
}
