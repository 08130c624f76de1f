package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Topics is the registry of the topics on a server. Its cache spares a look at the meta for every message.
type Topics struct {
	q *Core
	Cache[TopicMeta]
}

// TopicMeta is what a process knows of a topic.
type TopicMeta struct {
	Partitions int
	status     bool   // messages have one
	born       string // the server's bornKey at that time
	Read       time.Time
}

// Create makes a topic, or lets its partitions grow; see MQ.CreateTopic.
func (t *Topics) Create(ctx context.Context, topic model.Topic) (int, error) {
	if err := topic.Validate(); err != nil {
		return 0, err
	}
	status := ""
	if topic.Status {
		status = statusOn
	}
	doing := "create topic " + topic.Name
	answer, err := t.q.Run(ctx, t.q.Scripts.TopicCreate, []string{MetaKey(topic.Name)},
		strconv.Itoa(topic.Partitions), string(t.q.Cfg.Layout), strconv.FormatInt(t.q.Cfg.Now().UnixMilli(), 10), status).ToArray()
	if err != nil {
		return 0, model.Failure(ctx, doing, err)
	}
	info := TopicInfo{Name: topic.Name, Status: stream.Text(answer[2]) == statusOn}
	if info.Partitions, info.Layout, err = decodeMeta(answer[0], answer[1]); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	if err := t.CheckLayout(info); err != nil {
		return 0, err
	}
	if deleting, err := answer[3].AsInt64(); err != nil || deleting == 1 {
		return 0, fmt.Errorf("topic %s is being deleted: %w: delete it again to end that", topic.Name, model.ErrUnknownTopic)
	}
	all := make([]int, info.Partitions)
	for i := range all {
		all[i] = i
	}
	results := t.q.Client.DoMulti(ctx,
		append(t.Register(topic.Name, info.Partitions), t.q.Client.B().Sadd().Key(RegistryKey).Member(topic.Name).Build())...)
	if err := stream.FirstError(results); err != nil {
		return 0, model.Failure(ctx, doing, err)
	}
	if err := t.MakeStreams(ctx, topic.Name, all...); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	return t.note(ctx, doing, info, "")
}

// CheckLayout returns ErrLayout for a topic of another layout.
func (t *Topics) CheckLayout(info TopicInfo) error {
	if info.Layout == t.q.Cfg.Layout {
		return nil
	}
	return fmt.Errorf("topic %s has layout %q: %w: %q is set", info.Name, info.Layout, model.ErrLayout, t.q.Cfg.Layout)
}

// note remembers a topic, with the server's bornKey, which it makes if need be.
func (t *Topics) note(ctx context.Context, doing string, info TopicInfo, born string) (int, error) {
	if born == "" {
		results := t.q.Client.DoMulti(ctx,
			t.q.Client.B().Set().Key(bornKey).Value(model.NewUUID(t.q.Cfg.Now())).Nx().Build(), t.q.Client.B().Get().Key(bornKey).Build())
		err := stream.FirstError(results)
		if err == nil {
			born, err = results[1].ToString()
		}
		if err != nil {
			return 0, model.Failure(ctx, doing, err)
		}
	}
	t.Put(info.Name, TopicMeta{Partitions: info.Partitions, status: info.Status, born: born, Read: t.q.Cfg.Now()})
	return info.Partitions, nil
}

// Register are the commands that write the topic's partitionsKey; the numbers that earlier versions wrote go.
func (t *Topics) Register(topic string, partitions int) rueidis.Commands {
	streams, numbers := make([]string, partitions), make([]string, partitions)
	for i := range streams {
		streams[i], numbers[i] = t.q.Source(topic, i).Stream(), strconv.Itoa(i)
	}
	return rueidis.Commands{
		t.q.Client.B().Sadd().Key(PartitionsKey(topic)).Member(streams...).Build(),
		t.q.Client.B().Srem().Key(PartitionsKey(topic)).Member(numbers...).Build(),
	}
}

// Partitions is the number of partitions that a topic has now. Errors: ErrUnknownTopic, ErrLayout, ErrUnavailable.
func (t *Topics) Partitions(ctx context.Context, topic string) (int, error) {
	if err := model.CheckName(topic, model.ErrTopicName); err != nil {
		return 0, err
	}
	doing := "read topic " + topic
	results := t.q.Client.DoMulti(ctx, t.readMeta(topic), t.q.Client.B().Get().Key(bornKey).Build())
	if err := stream.FirstError(results); err != nil {
		return 0, model.Failure(ctx, doing, err)
	}
	born, _ := results[1].ToString() // nil: none
	info, err := decodeTopic(ctx, topic, results[0])
	switch {
	case errors.Is(err, model.ErrUnknownTopic):
		return t.heal(ctx, topic, born)
	case info.Deleting:
		t.Forget(topic)
		return 0, fmt.Errorf("topic %s is being deleted: %w", topic, model.ErrUnknownTopic)
	case err == nil:
		err = t.CheckLayout(info)
	}
	if err != nil {
		return 0, err
	}
	return t.note(ctx, doing, info, born)
}

// MakeStreams lets the streams of partitions be there. Errors: ErrUnknownTopic, ErrFull, ErrUnavailable.
func (t *Topics) MakeStreams(ctx context.Context, topic string, partitions ...int) error {
	calls := make([]stream.Call, len(partitions))
	for i, partition := range partitions {
		keys := []string{t.q.Source(topic, partition).Stream()}
		if t.q.Cfg.Layout == model.LayoutSingle {
			keys = append(keys, MetaKey(topic))
		}
		calls[i] = stream.Call{Script: t.q.Scripts.StreamMake, Keys: keys}
	}
	for _, r := range t.q.RunAll(ctx, calls) {
		code, err := r.AsInt64()
		if err != nil {
			return model.Failure(ctx, "make the streams of topic "+topic, err)
		}
		if code < 0 {
			t.Forget(topic)
			return fmt.Errorf("topic %s: %w", topic, model.ErrUnknownTopic)
		}
	}
	return nil
}

// heal makes a topic again that this process knew: the server was flushed. What was not known, or is gone from the
// server that it was made on, does not exist.
func (t *Topics) heal(ctx context.Context, topic, born string) (int, error) {
	known, ok := t.Get(topic)
	if !ok || known.born == born {
		t.Forget(topic)
		return 0, fmt.Errorf("topic %s: %w", topic, model.ErrUnknownTopic)
	}
	partitions, err := t.Create(ctx, model.Topic{Name: topic, Partitions: known.Partitions, Status: known.status})
	if err == nil {
		t.q.Observe(model.Event{Kind: model.EventHealed, Topic: topic, Partition: -1, Count: 1})
		t.q.Cfg.Log.WarnContext(ctx, "streammq: topic was lost and is made again", slog.String("topic", topic), slog.Int("partitions", partitions))
	}
	return partitions, err
}

// Known is Partitions, at most Config.MetaRefresh old. What is known serves on while the server does not answer.
func (t *Topics) Known(ctx context.Context, topic string) (int, error) {
	known, ok := t.Get(topic)
	if ok && t.q.Cfg.Now().Sub(known.Read) < t.q.Cfg.MetaRefresh {
		return known.Partitions, nil
	}
	return t.Partitions(ctx, topic)
}

const statusOn = "1" // in the meta's field status

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

// TopicInfo is what the registry knows of a topic.
type TopicInfo struct {
	Name       string
	Partitions int
	Layout     model.Layout
	Status     bool      // its messages have one, see MQ.Statuses
	Created    time.Time // zero: another system made it
	// Deleting tells that a deletion was begun and not ended; Admin.Delete goes on with it.
	Deleting bool
}

// List lists all topics by name. Error: ErrUnavailable.
func (t *Topics) List(ctx context.Context) ([]TopicInfo, error) {
	names, err := t.q.Client.Do(ctx, t.q.Client.B().Smembers().Key(RegistryKey).Build()).AsStrSlice()
	if err != nil {
		return nil, model.Failure(ctx, "list topics", err)
	}
	slices.Sort(names)
	list := make([]TopicInfo, 0, len(names))
	commands := make(rueidis.Commands, len(names))
	for i, name := range names {
		commands[i] = t.readMeta(name)
	}
	if len(names) == 0 {
		return list, nil
	}
	for i, r := range t.q.Client.DoMulti(ctx, commands...) {
		m, err := decodeTopic(ctx, names[i], r)
		if err != nil && !errors.Is(err, model.ErrUnknownTopic) && !errors.Is(err, model.ErrMalformed) {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// Info is what the registry knows of one topic. Errors: ErrUnknownTopic, ErrMalformed, ErrUnavailable.
func (t *Topics) Info(ctx context.Context, topic string) (TopicInfo, error) {
	if err := model.CheckName(topic, model.ErrTopicName); err != nil {
		return TopicInfo{}, err
	}
	return decodeTopic(ctx, topic, t.q.Client.Do(ctx, t.readMeta(topic)))
}

func (t *Topics) readMeta(topic string) rueidis.Completed {
	return t.q.Client.B().Hmget().Key(MetaKey(topic)).Field("partitionCount", "layout", "status", "createdAt", metaDeleting).Build()
}

func decodeTopic(ctx context.Context, topic string, r rueidis.RedisResult) (TopicInfo, error) {
	info := TopicInfo{Name: topic}
	fields, err := r.ToArray()
	if err != nil {
		return info, model.Failure(ctx, "read topic "+topic, err)
	}
	if fields[0].IsNil() {
		return info, fmt.Errorf("topic %s: %w", topic, model.ErrUnknownTopic)
	}
	info.Status, info.Deleting = stream.Text(fields[2]) == statusOn, !fields[4].IsNil()
	if info.Partitions, info.Layout, err = decodeMeta(fields[0], fields[1]); err != nil {
		return info, fmt.Errorf("topic %s: %w", topic, err)
	}
	info.Created, _ = wire.DecodeTime(stream.Text(fields[3]))
	return info, nil
}
