package core

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// CreateTopic makes a topic, or lets its partitions grow; see MQ.CreateTopic.
func (q *Core) CreateTopic(ctx context.Context, t model.Topic) (int, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	now, status := q.Cfg.Now(), ""
	if t.Status {
		status = statusOn
	}
	doing := "create topic " + t.Name
	answer, err := q.Run(ctx, q.Scripts.TopicCreate, []string{MetaKey(t.Name)},
		strconv.Itoa(t.Partitions), string(q.Cfg.Layout), strconv.FormatInt(now.UnixMilli(), 10), status).ToArray()
	if err != nil {
		return 0, model.Failure(ctx, doing, err)
	}
	partitions, layout, err := decodeMeta(answer[0], answer[1])
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	if layout != q.Cfg.Layout {
		return 0, fmt.Errorf("topic %s has layout %q: %w: %q is set", t.Name, layout, model.ErrLayout, q.Cfg.Layout)
	}
	if deleting, err := answer[3].AsInt64(); err != nil || deleting == 1 {
		return 0, fmt.Errorf("topic %s is being deleted: %w: delete it again to end that", t.Name, model.ErrUnknownTopic)
	}
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	results := q.Client.DoMulti(ctx, append(q.Register(t.Name, partitions), q.Client.B().Sadd().Key(RegistryKey).Member(t.Name).Build())...)
	if err := stream.FirstError(results); err != nil {
		return 0, model.Failure(ctx, doing, err)
	}
	if err := q.MakeStreams(ctx, t.Name, all...); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	born, err := q.born(ctx)
	if err != nil {
		return 0, model.Failure(ctx, doing, err)
	}
	q.Cache.Put(t.Name, TopicMeta{Partitions: partitions, status: isOn(answer[2]), born: born, Read: now})
	return partitions, nil
}

// Register are the commands that write the topic's partitionsKey; the numbers that earlier versions wrote go.
func (q *Core) Register(topic string, partitions int) rueidis.Commands {
	streams, numbers := make([]string, partitions), make([]string, partitions)
	for i := range streams {
		streams[i], numbers[i] = StreamKey(topic, i), strconv.Itoa(i)
	}
	return rueidis.Commands{
		q.Client.B().Sadd().Key(PartitionsKey(topic)).Member(streams...).Build(),
		q.Client.B().Srem().Key(PartitionsKey(topic)).Member(numbers...).Build(),
	}
}

// Partitions is the number of partitions that a topic has now. Errors: ErrUnknownTopic, ErrLayout, ErrUnavailable.
func (q *Core) Partitions(ctx context.Context, topic string) (int, error) {
	if err := model.CheckName(topic, model.ErrTopicName); err != nil {
		return 0, err
	}
	results := q.Client.DoMulti(ctx,
		q.Client.B().Hmget().Key(MetaKey(topic)).Field("partitionCount", "layout", "status", metaDeleting).Build(),
		q.Client.B().Get().Key(bornKey).Build())
	if err := stream.FirstError(results); err != nil {
		return 0, model.Failure(ctx, "read topic "+topic, err)
	}
	born, _ := results[1].ToString() // nil: none
	fields, err := results[0].ToArray()
	switch {
	case err != nil:
		return 0, model.Failure(ctx, "read topic "+topic, err)
	case fields[0].IsNil():
		return q.heal(ctx, topic, born)
	case !fields[3].IsNil():
		q.Cache.Forget(topic)
		return 0, fmt.Errorf("topic %s is being deleted: %w", topic, model.ErrUnknownTopic)
	}
	partitions, layout, err := decodeMeta(fields[0], fields[1])
	if err != nil {
		return 0, fmt.Errorf("topic %s: %w", topic, err)
	}
	if layout != q.Cfg.Layout {
		return 0, fmt.Errorf("topic %s has layout %q: %w: %q is set", topic, layout, model.ErrLayout, q.Cfg.Layout)
	}
	if born == "" {
		if born, err = q.born(ctx); err != nil {
			return 0, model.Failure(ctx, "read topic "+topic, err)
		}
	}
	q.Cache.Put(topic, TopicMeta{Partitions: partitions, status: isOn(fields[2]), born: born, Read: q.Cfg.Now()})
	return partitions, nil
}

// born reads the server's bornKey, and makes it if need be.
func (q *Core) born(ctx context.Context) (string, error) {
	results := q.Client.DoMulti(ctx,
		q.Client.B().Set().Key(bornKey).Value(model.NewUUID(q.Cfg.Now())).Nx().Build(), q.Client.B().Get().Key(bornKey).Build())
	if err := stream.FirstError(results); err != nil {
		return "", err
	}
	return results[1].ToString()
}

// MakeStreams lets the streams of partitions be there. Errors: ErrUnknownTopic, ErrFull, ErrUnavailable.
func (q *Core) MakeStreams(ctx context.Context, topic string, partitions ...int) error {
	calls := make([]stream.Call, len(partitions))
	for i, partition := range partitions {
		keys := []string{q.Source(topic, partition).Stream()}
		if q.Cfg.Layout == model.LayoutSingle {
			keys = append(keys, MetaKey(topic))
		}
		calls[i] = stream.Call{Script: q.Scripts.StreamMake, Keys: keys}
	}
	for _, r := range q.RunAll(ctx, calls) {
		code, err := r.AsInt64()
		if err != nil {
			return model.Failure(ctx, "make the streams of topic "+topic, err)
		}
		if code < 0 {
			q.Cache.Forget(topic)
			return fmt.Errorf("topic %s: %w", topic, model.ErrUnknownTopic)
		}
	}
	return nil
}

// heal makes a topic again that this process knew: the server was flushed. What was not known, or is gone from the
// server that it was made on, does not exist.
func (q *Core) heal(ctx context.Context, topic, born string) (int, error) {
	known, ok := q.Cache.Get(topic)
	if !ok || known.born == born {
		q.Cache.Forget(topic)
		return 0, fmt.Errorf("topic %s: %w", topic, model.ErrUnknownTopic)
	}
	partitions, err := q.CreateTopic(ctx, model.Topic{Name: topic, Partitions: known.Partitions, Status: known.status})
	if err == nil {
		q.Observe(model.Event{Kind: model.EventHealed, Topic: topic, Partition: -1, Count: 1})
		q.Cfg.Log.WarnContext(ctx, "streammq: topic was lost and is made again", slog.String("topic", topic), slog.Int("partitions", partitions))
	}
	return partitions, err
}

// KnownPartitions is Partitions, at most Config.MetaRefresh old. What is known serves on while the server does not answer.
func (q *Core) KnownPartitions(ctx context.Context, topic string) (int, error) {
	known, ok := q.Cache.Get(topic)
	if ok && q.Cfg.Now().Sub(known.Read) < q.Cfg.MetaRefresh {
		return known.Partitions, nil
	}
	return q.Partitions(ctx, topic)
}

const statusOn = "1" // in the meta's field status

func isOn(m rueidis.RedisMessage) bool {
	text, err := m.ToString()
	return err == nil && text == statusOn
}

func decodeMeta(partitions, layout rueidis.RedisMessage) (int, model.Layout, error) {
	n, err := partitions.AsInt64()
	if err != nil || n < 1 || n > model.MaxPartitions {
		return 0, "", fmt.Errorf("partitionCount: %w: 1 to %d", model.ErrMalformed, model.MaxPartitions)
	}
	if layout.IsNil() {
		return int(n), model.LayoutSingle, nil
	}
	name, err := layout.ToString()
	return int(n), model.Layout(name), err
}

// metaDeleting is a field of the meta: the groups that the topic had when its deletion was begun, with spaces between.
const metaDeleting = "deleting"
