// Package admin looks at, and changes, topics and groups as their operator.
package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	n, err := a.mq.Partitions(ctx, a.name)
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

const liveNamed = 5 // members that the text of a GroupLiveError names

// GroupLiveError says who lives in a group that was to be changed or deleted. It is an ErrGroupLive.
type GroupLiveError struct {
	Topic   string // or the stream's key
	Group   string
	Members []string // by name: those with a heartbeat, and those that own a partition; empty: they left meanwhile
}

// Error names the members and the remedy.
func (e *GroupLiveError) Error() string {
	who := strings.Join(e.Members[:min(len(e.Members), liveNamed)], ", ")
	if more := len(e.Members) - liveNamed; more > 0 {
		who += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("group %s of %s: %v: %d (%s): stop them, or wait a lease after they died, or force it",
		e.Group, e.Topic, model.ErrGroupLive, len(e.Members), who)
}

// Unwrap is ErrGroupLive.
func (e *GroupLiveError) Unwrap() error { return model.ErrGroupLive }

// refuseLive returns a *GroupLiveError when somebody lives in the group.
func (a *Admin) refuseLive(ctx context.Context, group string) error {
	members, err := a.living(ctx, group)
	if err == nil && len(members) > 0 {
		err = &GroupLiveError{Topic: a.name, Group: group, Members: members}
	}
	return err
}

// refuse is the error for a script that found an owner.
func (a *Admin) refuse(ctx context.Context, group string) error {
	members, err := a.living(ctx, group)
	if err != nil {
		return err
	}
	return &GroupLiveError{Topic: a.name, Group: group, Members: members}
}

// living are the members with a heartbeat and the owners of partitions, by name.
func (a *Admin) living(ctx context.Context, group string) ([]string, error) {
	if a.single {
		members, err := a.members(ctx, group)
		return names(members, nil), err
	}
	o, err := a.Owners(ctx, group)
	return names(o.Members, o.Partitions), err
}

func names(members []MemberInfo, owned []PartitionOwner) []string {
	var list []string
	for _, m := range members {
		if m.Live {
			list = append(list, m.Name)
		}
	}
	for _, p := range owned {
		if p.Owner != "" {
			list = append(list, p.Owner)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
