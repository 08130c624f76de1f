package streammq

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// settleTime is how long a deletion waits between its two passes, for those who read the meta right before the mark.
const settleTime = 100 * time.Millisecond

// Delete removes a topic completely: its partitions, groups, leases, retries, payloads beside the streams and dead
// letters. Statuses expire by themselves, and a dead letter stream of another name stays. While a member of any of its
// groups lives, or one that consumes its dead letters, it is refused unless forced. From its first step on the topic is
// unknown to producers and members, whose Run ends with ErrUnknownTopic. A deletion that was cut off is ended by another
// call, whoever lives; until then the topic cannot be made again.
//
// A single stream is removed in the same way, but has no meta that could tell its members that it is gone.
// Errors: ErrUnknownTopic, ErrGroupLive as *GroupLiveError, ErrLayout, ErrUnavailable.
func (a *Admin) Delete(ctx context.Context, how Removal) error {
	if a.single {
		return a.deleteStream(ctx, how)
	}
	info, err := a.mq.Topic(ctx, a.name)
	if err != nil {
		return err
	}
	if info.Layout != a.mq.cfg.Layout {
		return fmt.Errorf("topic %s has layout %q: %w: %q is set", a.name, info.Layout, ErrLayout, a.mq.cfg.Layout)
	}
	sources := make([]source, info.Partitions)
	for i := range sources {
		sources[i] = a.source(i)
	}
	if !how.Force && !info.Deleting {
		if err := a.refuseAnyLive(ctx, sources); err != nil {
			return err
		}
	}
	a.mq.topics.forget(a.name)
	// First the mark, then a look at the groups, then the mark with them: no group comes in between.
	if _, err := a.mark(ctx, nil); err != nil {
		return err
	}
	groups, err := a.groupNames(ctx, sources)
	if err != nil {
		return err
	}
	if groups, err = a.mark(ctx, groups); err != nil {
		return err
	}
	if err := a.sweep(ctx, sources, groups); err != nil {
		return err
	}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := a.sweep(ctx, sources, groups); err != nil {
		return err
	}
	for _, command := range []rueidis.Completed{ // the meta last: it is what says that there is something to go on with
		a.mq.Client.B().Srem().Key(registryKey).Member(a.name).Build(),
		a.mq.Client.B().Unlink().Key(partitionsKey(a.name)).Build(),
		a.mq.Client.B().Unlink().Key(metaKey(a.name)).Build(),
	} {
		if err := a.mq.Client.Do(ctx, command).Error(); err != nil {
			return failure(ctx, "delete topic "+a.name, err)
		}
	}
	return nil
}

// refuseAnyLive returns a *GroupLiveError when somebody lives in any group of the topic, or of its dead letters.
func (a *Admin) refuseAnyLive(ctx context.Context, sources []source) error {
	if err := a.refuseGroups(ctx, sources); err != nil {
		return err
	}
	for i, s := range sources {
		if i > 0 && !s.apart() {
			return nil // one stream of dead letters for the whole topic
		}
		for _, keys := range s.letterKeys() {
			letters := a.mq.StreamAdmin(keys[0])
			if err := letters.refuseGroups(ctx, []source{letters.source(0)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuseGroups returns a *GroupLiveError when somebody lives in any group of the sources.
func (a *Admin) refuseGroups(ctx context.Context, sources []source) error {
	groups, err := a.groupNames(ctx, sources)
	if err != nil {
		return err
	}
	for _, group := range groups {
		if err := a.refuseLive(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// mark notes that the topic is being deleted, and returns the groups that it had at this and earlier calls.
func (a *Admin) mark(ctx context.Context, groups []string) ([]string, error) {
	text, err := a.mq.Run(ctx, a.mq.scripts.TopicMark, []string{metaKey(a.name)}, groups...).ToString()
	if rueidis.IsRedisNil(err) {
		return nil, fmt.Errorf("topic %s: %w", a.name, ErrUnknownTopic)
	}
	return strings.Fields(text), failure(ctx, "delete topic "+a.name, err)
}

func (a *Admin) groupNames(ctx context.Context, sources []source) ([]string, error) {
	seen := map[string]bool{}
	for _, s := range sources {
		groups, err := a.mq.groupsOf(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			seen[g.Name] = true
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}

// sweep removes what the topic has beside its meta. What is named in another key goes before that key.
func (a *Admin) sweep(ctx context.Context, sources []source, groups []string) error {
	for i, s := range sources {
		if err := a.mq.removeBodies(ctx, s, allIDs); err != nil {
			return err
		}
		if i == 0 && !s.apart() {
			if err := a.sweepJava(ctx, s); err != nil {
				return err
			}
		}
		if i == 0 || s.apart() {
			for _, list := range []string{s.retry(), s.quarantine()} {
				if err := a.dropItems(ctx, s, list, "*"); err != nil {
					return err
				}
			}
		}
		if err := a.sweepDeadLetters(ctx, s); err != nil {
			return err
		}
		keys := []string{s.stream(), s.bodies(), s.retry(), s.quarantine()}
		if !s.apart() {
			keys = append(keys, s.commit())
		}
		for _, group := range groups {
			keys = append(keys, s.groupKeys(group)[1:]...)
		}
		if err := a.mq.Client.Do(ctx, a.mq.Client.B().Unlink().Key(keys...).Build()).Error(); err != nil {
			return failure(ctx, "delete "+s.stream(), err)
		}
	}
	for _, group := range groups {
		if err := a.mq.Client.Do(ctx, a.mq.Client.B().Unlink().Key(a.source(0).members(group)).Build()).Error(); err != nil {
			return failure(ctx, "delete members of "+group, err)
		}
	}
	return nil
}

// sweepJava removes the large payloads that producers of the Java original have put beside the streams.
func (a *Admin) sweepJava(ctx context.Context, s source) error {
	doing := "delete payloads of " + a.name
	for {
		keys, err := a.mq.Client.Do(ctx, a.mq.Client.B().Srandmember().Key(s.javaPayloads()).Count(dropPortion).Build()).AsStrSlice()
		if err != nil || len(keys) == 0 {
			return failure(ctx, doing, err)
		}
		results := a.mq.Client.DoMulti(ctx, // in turn: no note goes before its payload
			a.mq.Client.B().Unlink().Key(keys...).Build(), a.mq.Client.B().Zrem().Key(javaPayloadTimes).Member(keys...).Build(),
			a.mq.Client.B().Srem().Key(s.javaPayloads()).Member(keys...).Build())
		if err := stream.FirstError(results); err != nil {
			return failure(ctx, doing, err)
		}
	}
}

// sweepDeadLetters removes the dead letters with the groups that consume them, each stream in one step: their names are in it.
func (a *Admin) sweepDeadLetters(ctx context.Context, s source) error {
	for _, keys := range s.letterKeys() {
		letters := source{layout: s.layout, topic: keys[0], single: true}
		groups, err := a.mq.groupsOf(ctx, letters)
		if err != nil {
			return err
		}
		gone := keys[:]
		for _, g := range groups {
			gone = append(gone, letters.members(g.Name))
			gone = append(gone, letters.groupKeys(g.Name)[1:]...)
		}
		if err := a.mq.Client.Do(ctx, a.mq.Client.B().Unlink().Key(gone...).Build()).Error(); err != nil {
			return failure(ctx, "delete dead letters of "+a.name, err)
		}
	}
	return nil
}

// allIDs is a border above every id.
const allIDs = "+inf"

func (a *Admin) deleteStream(ctx context.Context, how Removal) error {
	sources, err := a.sources(ctx)
	if err != nil {
		return err
	}
	if !how.Force {
		if err := a.refuseGroups(ctx, sources); err != nil {
			return err
		}
	}
	groups, err := a.groupNames(ctx, sources)
	if err != nil {
		return err
	}
	return a.sweep(ctx, sources, groups)
}
