package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/share"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Owners is how a group shares the partitions now: the rebalance view.
type Owners struct {
	Partitions []PartitionOwner // by number; empty on a single stream
	Members    []MemberInfo     // by name, dead ones of the last day too
	Unowned    int              // partitions that have no owner now
	// Uncovered are the partitions that the caps of all live members leave over: no rebalance will give them an owner.
	Uncovered int
}

// PartitionOwner is who may write to one partition.
type PartitionOwner struct {
	Partition int
	Owner     string        // member of this start; "": nobody
	Left      time.Duration // until the lease expires, by Redis' clock
	Epoch     string        // of the last taking; "": never taken
	Live      bool          // the owner has a heartbeat
}

// MemberInfo is one member of a group.
type MemberInfo struct {
	Name   string
	Live   bool
	Left   time.Duration // until its heartbeat is over; negative: it has been over for that long
	Cap    int           // most partitions that it takes; 0: any number
	Pins   []int         // partitions that are its own while it lives
	Owned  int           // partitions that it owns
	Target int           // partitions that it will own when nobody comes or goes
}

// Owners tells who owns what. Errors: ErrUnknownTopic, ErrGroupName, ErrUnavailable.
func (a *Admin) Owners(ctx context.Context, group string) (Owners, error) {
	if err := model.CheckName(group, model.ErrGroupName); err != nil {
		return Owners{}, err
	}
	sources, err := a.sources(ctx)
	if err != nil {
		return Owners{}, err
	}
	var o Owners
	if o.Members, err = a.members(ctx, group); err != nil || a.single {
		return o, err
	}
	live := map[string]bool{}
	v := share.View{Leases: make([]string, len(sources))}
	for _, m := range o.Members {
		if m.Live {
			live[m.Name] = true
			v.Members = append(v.Members, share.MemberView{Name: m.Name, Cap: m.Cap, Pins: m.Pins})
		}
	}
	b := a.mq.Client.B
	commands := make(rueidis.Commands, 0, 3*len(sources))
	for _, s := range sources {
		commands = append(commands, b().Get().Key(s.Lease(group)).Build(), b().Pttl().Key(s.Lease(group)).Build(), b().Get().Key(s.Epoch(group)).Build())
	}
	results := a.mq.Client.DoMulti(ctx, commands...)
	if err := stream.FirstError(results); err != nil {
		return o, model.Failure(ctx, "read leases of "+a.name, err)
	}
	for i, s := range sources {
		p := PartitionOwner{Partition: s.Part}
		p.Owner, _ = results[3*i].ToString() // nil: nobody
		p.Epoch, _ = results[3*i+2].ToString()
		if p.Owner == "" {
			o.Unowned++
		} else if left, err := results[3*i+1].AsInt64(); err == nil {
			p.Left = time.Duration(max(0, left)) * time.Millisecond
		}
		p.Live, v.Leases[i] = live[p.Owner], p.Owner
		o.Partitions = append(o.Partitions, p)
	}
	owned := v.Owned()
	targets := v.Targets()
	for i := range o.Members {
		m := &o.Members[i]
		m.Owned, m.Target = owned[m.Name], targets[m.Name]
	}
	o.Uncovered = v.Unowned()
	return o, nil
}

// members reads the heartbeats of a group without changing them.
func (a *Admin) members(ctx context.Context, group string) ([]MemberInfo, error) {
	answer, err := a.mq.Run(ctx, a.mq.Scripts.Members, []string{a.source(0).Members(group)}).ToArray()
	if err != nil {
		return nil, model.Failure(ctx, "read members of group "+group, err)
	}
	now, err := answer[0].AsInt64()
	if err != nil {
		return nil, err
	}
	pairs, err := answer[1].AsStrSlice()
	if err != nil {
		return nil, err
	}
	list := make([]MemberInfo, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		parts := strings.Split(pairs[i+1], "|")
		until, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || len(parts) < 2 {
			continue // the next heartbeat of any member removes it
		}
		m := MemberInfo{Name: pairs[i], Live: until > now, Left: time.Duration(until-now) * time.Millisecond}
		m.Cap, _ = strconv.Atoi(parts[1]) // no number: no bound
		if len(parts) > 2 {
			m.Pins, _ = share.DecodePins(parts[2]) // what cannot be read is the business of the next heartbeat
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b MemberInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
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
