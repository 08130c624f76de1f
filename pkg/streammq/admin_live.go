package streammq

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

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
		e.Group, e.Topic, ErrGroupLive, len(e.Members), who)
}

// Unwrap is ErrGroupLive.
func (e *GroupLiveError) Unwrap() error { return ErrGroupLive }

// refuseLive returns a *GroupLiveError when somebody lives in the group.
func (a *Admin) refuseLive(ctx context.Context, group string) error {
	members, err := a.living(ctx, group)
	if err == nil && len(members) > 0 {
		err = &GroupLiveError{Topic: a.name, Group: group, Members: members}
	}
	return err
}

// refuse returns for a script that found an owner.
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
