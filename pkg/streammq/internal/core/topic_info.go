package core

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

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

// Topics lists all topics by name. Error: ErrUnavailable.
func (q *Core) Topics(ctx context.Context) ([]TopicInfo, error) {
	names, err := q.Client.Do(ctx, q.Client.B().Smembers().Key(RegistryKey).Build()).AsStrSlice()
	if err != nil {
		return nil, model.Failure(ctx, "list topics", err)
	}
	sort.Strings(names)
	list := make([]TopicInfo, 0, len(names))
	commands := make(rueidis.Commands, len(names))
	for i, name := range names {
		commands[i] = q.readMeta(name)
	}
	if len(names) == 0 {
		return list, nil
	}
	for i, r := range q.Client.DoMulti(ctx, commands...) {
		m, err := decodeTopic(ctx, names[i], r)
		if err != nil && !errors.Is(err, model.ErrUnknownTopic) && !errors.Is(err, model.ErrMalformed) {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// Topic is what the registry knows of one topic. Errors: ErrUnknownTopic, ErrMalformed, ErrUnavailable.
func (q *Core) Topic(ctx context.Context, topic string) (TopicInfo, error) {
	if err := model.CheckName(topic, model.ErrTopicName); err != nil {
		return TopicInfo{}, err
	}
	return decodeTopic(ctx, topic, q.Client.Do(ctx, q.readMeta(topic)))
}

func (q *Core) readMeta(topic string) rueidis.Completed {
	return q.Client.B().Hmget().Key(MetaKey(topic)).Field("partitionCount", "layout", "status", "createdAt", metaDeleting).Build()
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
	if info.Partitions, info.Layout, err = decodeMeta(fields[0], fields[1]); err != nil {
		return info, fmt.Errorf("topic %s: %w", topic, err)
	}
	info.Status, info.Deleting = isOn(fields[2]), !fields[4].IsNil()
	if text, err := fields[3].ToString(); err == nil {
		info.Created, _ = wire.DecodeTime(text)
	}
	return info, nil
}

// GroupsOf are the groups of one stream; a missing stream has none.
func (q *Core) GroupsOf(ctx context.Context, s Source) ([]stream.Group, error) {
	groups, err := stream.Groups(ctx, q.Client, s.Stream())
	if err != nil && !stream.IsMissing(err) {
		return nil, model.Failure(ctx, "list groups of "+s.Stream(), err)
	}
	return groups, nil
}
