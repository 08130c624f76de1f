package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
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
	info, err := a.mq.Topics.Info(ctx, a.name)
	if err != nil {
		return err
	}
	if err := a.mq.Topics.CheckLayout(info); err != nil {
		return err
	}
	sources := make([]core.Source, info.Partitions)
	for i := range sources {
		sources[i] = a.source(i)
	}
	if !how.Force && !info.Deleting {
		if err := RefuseAnyLive(a, ctx, sources); err != nil {
			return err
		}
	}
	a.mq.Topics.Forget(a.name)
	// First the mark, then a look at the groups, then the mark with them: no group comes in between.
	if _, err := Mark(a, ctx, nil); err != nil {
		return err
	}
	groups, err := GroupNames(a, ctx, sources)
	if err != nil {
		return err
	}
	if groups, err = Mark(a, ctx, groups); err != nil {
		return err
	}
	if err := Sweep(a, ctx, sources, groups); err != nil {
		return err
	}
	if err := stream.Sleep(ctx, settleTime); err != nil {
		return err
	}
	if err := Sweep(a, ctx, sources, groups); err != nil {
		return err
	}
	for _, command := range []rueidis.Completed{ // the meta last: it is what says that there is something to go on with
		a.mq.Client.B().Srem().Key(core.RegistryKey).Member(a.name).Build(),
		a.mq.Client.B().Unlink().Key(core.PartitionsKey(a.name)).Build(),
		a.mq.Client.B().Unlink().Key(core.MetaKey(a.name)).Build(),
	} {
		if err := a.mq.Client.Do(ctx, command).Error(); err != nil {
			return model.Failure(ctx, "delete topic "+a.name, err)
		}
	}
	return nil
}

// RefuseAnyLive returns a *GroupLiveError when somebody lives in any group of the topic, or of its dead letters.
func RefuseAnyLive(a *Admin, ctx context.Context, sources []core.Source) error {
	if err := a.refuseGroups(ctx, sources); err != nil {
		return err
	}
	for i, s := range sources {
		if i > 0 && !s.Apart() {
			return nil // one stream of dead letters for the whole topic
		}
		for _, keys := range s.LetterKeys() {
			letters := NewStream(a.mq, keys[0])
			if err := letters.refuseGroups(ctx, []core.Source{letters.source(0)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuseGroups returns a *GroupLiveError when somebody lives in any group of the sources.
func (a *Admin) refuseGroups(ctx context.Context, sources []core.Source) error {
	groups, err := GroupNames(a, ctx, sources)
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

// Mark notes that the topic is being deleted, and returns the groups that it had at this and earlier calls.
func Mark(a *Admin, ctx context.Context, groups []string) ([]string, error) {
	text, err := a.mq.Run(ctx, a.mq.Scripts.TopicMark, []string{core.MetaKey(a.name)}, groups...).ToString()
	if rueidis.IsRedisNil(err) {
		return nil, fmt.Errorf("topic %s: %w", a.name, model.ErrUnknownTopic)
	}
	return strings.Fields(text), model.Failure(ctx, "delete topic "+a.name, err)
}

func GroupNames(a *Admin, ctx context.Context, sources []core.Source) ([]string, error) {
	seen := map[string]bool{}
	for _, s := range sources {
		groups, err := a.mq.GroupsOf(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			seen[g.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// Sweep removes what the topic has beside its meta. What is named in another key goes before that key.
func Sweep(a *Admin, ctx context.Context, sources []core.Source, groups []string) error {
	for i, s := range sources {
		if err := a.mq.RemoveBodies(ctx, s, allIDs); err != nil {
			return err
		}
		if i == 0 && !s.Apart() {
			if err := a.sweepJava(ctx, s); err != nil {
				return err
			}
		}
		if i == 0 || s.Apart() {
			for _, list := range []string{s.Retry(), s.Quarantine()} {
				if err := a.dropItems(ctx, s, list, "*"); err != nil {
					return err
				}
			}
		}
		if err := a.sweepDeadLetters(ctx, s); err != nil {
			return err
		}
		keys := []string{s.Stream(), s.Bodies(), s.Retry(), s.Quarantine()}
		if !s.Apart() {
			keys = append(keys, s.Commit())
		}
		for _, group := range groups {
			keys = append(keys, s.GroupKeys(group)[1:]...)
		}
		if err := a.mq.Client.Do(ctx, a.mq.Client.B().Unlink().Key(keys...).Build()).Error(); err != nil {
			return model.Failure(ctx, "delete "+s.Stream(), err)
		}
	}
	for _, group := range groups {
		if err := a.mq.Client.Do(ctx, a.mq.Client.B().Unlink().Key(a.source(0).Members(group)).Build()).Error(); err != nil {
			return model.Failure(ctx, "delete members of "+group, err)
		}
	}
	return nil
}

// sweepJava removes the large payloads that producers of the Java original have put beside the streams.
func (a *Admin) sweepJava(ctx context.Context, s core.Source) error {
	doing := "delete payloads of " + a.name
	for {
		keys, err := a.mq.Client.Do(ctx, a.mq.Client.B().Srandmember().Key(s.JavaPayloads()).Count(dropPortion).Build()).AsStrSlice()
		if err != nil || len(keys) == 0 {
			return model.Failure(ctx, doing, err)
		}
		results := a.mq.Client.DoMulti(ctx, // in turn: no note goes before its payload
			a.mq.Client.B().Unlink().Key(keys...).Build(), a.mq.Client.B().Zrem().Key(core.JavaPayloadTimes).Member(keys...).Build(),
			a.mq.Client.B().Srem().Key(s.JavaPayloads()).Member(keys...).Build())
		if err := stream.FirstError(results); err != nil {
			return model.Failure(ctx, doing, err)
		}
	}
}

// sweepDeadLetters removes the dead letters with the groups that consume them, each stream in one step: their names are in it.
func (a *Admin) sweepDeadLetters(ctx context.Context, s core.Source) error {
	for _, keys := range s.LetterKeys() {
		letters := core.Source{Layout: s.Layout, Topic: keys[0], Single: true}
		groups, err := a.mq.GroupsOf(ctx, letters)
		if err != nil {
			return err
		}
		gone := keys[:]
		for _, g := range groups {
			gone = append(gone, letters.Members(g.Name))
			gone = append(gone, letters.GroupKeys(g.Name)[1:]...)
		}
		if err := a.mq.Client.Do(ctx, a.mq.Client.B().Unlink().Key(gone...).Build()).Error(); err != nil {
			return model.Failure(ctx, "delete dead letters of "+a.name, err)
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
	groups, err := GroupNames(a, ctx, sources)
	if err != nil {
		return err
	}
	return Sweep(a, ctx, sources, groups)
}
