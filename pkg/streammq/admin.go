package streammq

import (
	"context"
	"fmt"
)

// Admin looks at, and changes, one topic or one single stream as its operator. It is safe for concurrent use.
type Admin struct {
	mq     *MQ
	name   string // the topic, or the stream's key
	single bool
}

// Admin gives an operator's access to a topic.
func (q *MQ) Admin(topic string) *Admin { return &Admin{mq: q, name: topic} }

// StreamAdmin gives an operator's access to a single stream. It has one partition, number 0, and no leases.
func (q *MQ) StreamAdmin(streamKey string) *Admin {
	return &Admin{mq: q, name: streamKey, single: true}
}

func (a *Admin) source(partition int) source {
	return source{layout: a.mq.cfg.Layout, topic: a.name, part: partition, single: a.single}
}

// sources are the partitions, in order. Errors: ErrUnknownTopic, ErrStreamKey, ErrLayout, ErrUnavailable.
func (a *Admin) sources(ctx context.Context) ([]source, error) {
	if a.single {
		return []source{a.source(0)}, checkStreamKey(a.name)
	}
	n, err := a.mq.Partitions(ctx, a.name)
	list := make([]source, n)
	for i := range list {
		list[i] = a.source(i)
	}
	return list, err
}

// one is a partition that there is. Errors: ErrPartition, and those of sources.
func (a *Admin) one(ctx context.Context, partition int) (source, error) {
	list, err := a.sources(ctx)
	if err != nil {
		return source{}, err
	}
	if partition < 0 || partition >= len(list) {
		return source{}, fmt.Errorf("partition %d of %s: %w: 0 to %d", partition, a.name, ErrPartition, len(list)-1)
	}
	return list[partition], nil
}
