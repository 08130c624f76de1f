// Package admin looks at, and changes, topics and groups as their operator.
package admin

import (
	"context"
	"fmt"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Admin looks at, and changes, one topic or one single stream as its operator. It is safe for concurrent use.
type Admin struct {
	mq     *core.Core
	name   string // the topic, or the stream's key
	single bool
}

// New gives an operator's access to a topic.
func New(q *core.Core, topic string) *Admin { return &Admin{mq: q, name: topic} }

// NewStream gives an operator's access to a single stream.
func NewStream(q *core.Core, streamKey string) *Admin {
	return &Admin{mq: q, name: streamKey, single: true}
}

func (a *Admin) source(partition int) core.Source {
	return core.Source{Layout: a.mq.Cfg.Layout, Topic: a.name, Part: partition, Single: a.single}
}

// sources are the partitions, in order. Errors: ErrUnknownTopic, ErrStreamKey, ErrLayout, ErrUnavailable.
func (a *Admin) sources(ctx context.Context) ([]core.Source, error) {
	if a.single {
		return []core.Source{a.source(0)}, model.CheckStreamKey(a.name)
	}
	n, err := a.mq.Topics.Partitions(ctx, a.name)
	list := make([]core.Source, n)
	for i := range list {
		list[i] = a.source(i)
	}
	return list, err
}

// one is a partition that there is. Errors: ErrPartition, and those of sources.
func (a *Admin) one(ctx context.Context, partition int) (core.Source, error) {
	list, err := a.sources(ctx)
	if err != nil {
		return core.Source{}, err
	}
	if partition < 0 || partition >= len(list) {
		return core.Source{}, fmt.Errorf("partition %d of %s: %w: 0 to %d", partition, a.name, model.ErrPartition, len(list)-1)
	}
	return list[partition], nil
}
