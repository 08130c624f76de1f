package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const dropPortion = 100 // retry items removed by one script

// Position is where a group goes on: with the entries after it.
type Position struct{ after string }

// PositionStart is before all that the streams still hold.
func PositionStart() Position { return Position{"0"} }

// PositionEnd is after all that was published until now.
func PositionEnd() Position { return Position{"$"} }

// PositionTime is before the first entry that was added at a time or later, by Redis' clock.
func PositionTime(t time.Time) Position {
	if t.UnixMilli() <= 0 {
		return PositionStart()
	}
	return Position{strconv.FormatInt(t.UnixMilli()-1, 10) + "-18446744073709551615"}
}

// PositionAfter is after an entry's id, "ms-seq" or "ms"; in every partition, so name one partition with it if the id
// came from there. Error: ErrEntryID.
func PositionAfter(id string) (Position, error) {
	if err := model.CheckID(id); err != nil {
		return Position{}, err
	}
	return Position{id}, nil
}

// Reset says how a group is set back or forward.
type Reset struct {
	To Position
	// Partition is the only one; -1: all.
	Partition int
	// Force resets although the group has members; they lose their partitions at once and take them again, and what they
	// have in hand is delivered again if it comes after the position.
	Force bool
	// DropRetries removes what the group has put off by republishing, too; otherwise it runs when it is due.
	DropRetries bool
}

// ResetGroup lets a group go on after a position. What comes after it is delivered as if for the first time; what comes
// before it counts as finished, the group's pending entries and retries in place among it. Each partition is one step; after
// an error it may be called again. It returns how many pending entries went.
// Errors: ErrNotFound when no partition has the group, ErrGroupLive as *GroupLiveError, ErrConfig, ErrUnknownTopic,
// ErrUnavailable.
func (a *Admin) ResetGroup(ctx context.Context, group string, how Reset) (int, error) {
	if how.To.after == "" {
		return 0, fmt.Errorf("reset group %s: To: %w: must be set", group, model.ErrConfig)
	}
	sources, err := a.forGroup(ctx, group, how.Force)
	if err != nil {
		return 0, err
	}
	if how.Partition >= 0 {
		s, err := a.one(ctx, how.Partition)
		if err != nil {
			return 0, err
		}
		sources = []core.Source{s}
	}
	total, found := 0, false
	var lacking []core.Source
	for _, s := range sources {
		n, err := a.mq.Run(ctx, a.mq.Scripts.GroupReset, s.GroupKeys(group), group, how.To.after, stream.Flag(how.Force)).AsInt64()
		switch {
		case err != nil:
			return total, model.Failure(ctx, "reset group "+group+" on "+s.Stream(), err)
		case n == codeOwned:
			return total, a.refuse(ctx, group)
		case n >= 0:
			total, found = total+int(n), true
		default:
			lacking = append(lacking, s)
		}
	}
	if !found {
		return total, fmt.Errorf("group %s of %s: %w", group, a.name, model.ErrNotFound)
	}
	for _, s := range lacking { // new partitions: a member would make the group at its own start
		create := a.mq.Client.B().XgroupCreate().Key(s.Stream()).Group(group).Id(how.To.after).Build()
		if err := a.mq.Client.Do(ctx, create).Error(); err != nil && !stream.IsMissing(err) && !stream.IsError(err, "BUSYGROUP") {
			return total, model.Failure(ctx, "make group "+group+" on "+s.Stream(), err)
		}
	}
	if how.DropRetries {
		err = a.dropRetries(ctx, sources, group)
	}
	return total, err
}

// codeOwned is the answer of group_reset.lua and group_delete.lua for a partition with an owner.
const codeOwned = -2

// forGroup are the sources, when nobody lives in the group or force says that it does not matter.
func (a *Admin) forGroup(ctx context.Context, group string, force bool) ([]core.Source, error) {
	if err := model.CheckName(group, model.ErrGroupName); err != nil {
		return nil, err
	}
	sources, err := a.sources(ctx)
	if err != nil || force {
		return sources, err
	}
	return sources, a.refuseLive(ctx, group)
}

// Removal says how a topic, a single stream or a group is deleted.
type Removal struct {
	// Force deletes although members live. Those of a topic end with ErrUnknownTopic. Those of a group or a single stream lose
	// what they hold, can write nothing more of it, and make the group again: at its start, so that stop them first unless
	// everything that the stream still holds may be delivered again.
	Force bool
}

// DeleteGroup removes a group with its position, pending entries, retries, leases and members. Its dead letters stay.
// A group with members is refused unless forced. After an error it may be called again.
// Errors: ErrNotFound when no partition has the group, ErrGroupLive as *GroupLiveError, ErrUnknownTopic, ErrUnavailable.
func (a *Admin) DeleteGroup(ctx context.Context, group string, how Removal) error {
	sources, err := a.forGroup(ctx, group, how.Force)
	if err != nil {
		return err
	}
	found := false
	for _, s := range sources {
		n, err := a.mq.Run(ctx, a.mq.Scripts.GroupDelete, s.GroupKeys(group), group, stream.Flag(how.Force)).AsInt64()
		switch {
		case err != nil:
			return model.Failure(ctx, "delete group "+group+" on "+s.Stream(), err)
		case n == codeOwned:
			return a.refuse(ctx, group)
		case n == 1:
			found = true
		}
	}
	if err := a.dropRetries(ctx, sources, group); err != nil {
		return err
	}
	members := a.source(0).Members(group) // last: what a call that was cut off leaves is found by the next
	gone, err := a.mq.Client.Do(ctx, a.mq.Client.B().Unlink().Key(members).Build()).AsInt64()
	if err != nil {
		return model.Failure(ctx, "delete group "+group, err)
	}
	if !found && gone == 0 {
		return fmt.Errorf("group %s of %s: %w", group, a.name, model.ErrNotFound)
	}
	return nil
}

// dropRetries removes the retry items of one group.
func (a *Admin) dropRetries(ctx context.Context, sources []core.Source, group string) error {
	for i, s := range sources {
		if i > 0 && !s.Apart() {
			return nil // one set for the whole topic
		}
		for _, list := range []string{s.Retry(), s.Quarantine()} {
			for _, match := range slices.Compact([]string{group + ":*", s.Items() + group + ":*"}) { // the ends of keys, and keys
				if err := a.dropItems(ctx, s, list, match); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// dropItems removes the items of a sorted set whose names match.
func (a *Admin) dropItems(ctx context.Context, s core.Source, list, match string) error {
	doing := "remove retries of " + a.name
	for cursor := uint64(0); ; {
		page, err := a.mq.Client.Do(ctx, a.mq.Client.B().Zscan().Key(list).Cursor(cursor).Match(match).Count(dropPortion).Build()).AsScanEntry()
		if err != nil {
			return model.Failure(ctx, doing, err)
		}
		var names []string
		for i := 0; i < len(page.Elements); i += 2 { // each with its score
			names = append(names, page.Elements[i])
		}
		if len(names) > 0 {
			keys := []string{s.Retry(), s.Quarantine()}
			for _, name := range names {
				keys = append(keys, s.Item(name))
			}
			if err := a.mq.Run(ctx, a.mq.Scripts.RetryDrop, keys, names...).Error(); err != nil {
				return model.Failure(ctx, doing, err)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}
