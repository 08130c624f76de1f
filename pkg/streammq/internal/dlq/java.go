package dlq

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// firstOwnDeadLetter is the smallest id in a stream of our own dead letters; see letter_id in fence.lua.
const firstOwnDeadLetter = "0-1000000000"

// ownDeadLetter tells whether a dead letter with this id is in the stream of our own.
func ownDeadLetter(id string) bool {
	_, seq, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(seq, 10, 64)
	return err == nil && n >= 1_000_000_000
}

// LettersApart tells whether the dead letters of a topic go to a stream of our own; see LetterPlace.
func LettersApart(q *core.Core, ctx context.Context, s core.Source) (bool, error) {
	if q.Cfg.Letters != model.LettersAuto {
		return q.Cfg.Letters == model.LettersOwn, nil
	}
	known, ok := q.Letters.Get(s.Topic)
	if ok && q.Cfg.Now().Sub(known.Seen) < q.Cfg.MetaRefresh {
		return known.Own, nil
	}
	own, err := javaReads(q, ctx, s)
	if err != nil {
		return false, model.Failure(ctx, "look for the dead letters of "+s.Topic, err)
	}
	q.Letters.Put(s.Topic, core.LetterPlace{Own: own, Seen: q.Cfg.Now()})
	if own && !known.Own {
		return own, PartDeadLetters(q, ctx, s)
	}
	return own, nil
}

// javaReads tells whether a consumer of the Java original works in the topic that may have another codec than StringCodec: by
// the ids that it notes as acknowledged, and its dead letters, which are in its codec, and without any by its leases.
func javaReads(q *core.Core, ctx context.Context, s core.Source) (bool, error) {
	partitions, err := q.Topics.Known(ctx, s.Topic)
	if err != nil {
		return false, err
	}
	commands := rueidis.Commands{
		q.Client.B().Hexists().Key(core.MetaKey(s.Topic)).Field("layout").Build(),
		q.Client.B().Xrevrange().Key(s.Dlq()).End("+").Start("-").Count(1).Build(),
	}
	for i := range partitions {
		commands = append(commands, q.Client.B().Hkeys().Key(q.Source(s.Topic, i).Commit()).Build())
	}
	results := q.Client.DoMulti(ctx, commands...)
	if err := stream.FirstError(results); err != nil {
		return false, err
	}
	var names []string // of the codec of its client
	for _, r := range results[2:] {
		groups, err := r.AsStrSlice()
		if err != nil {
			return false, err
		}
		names = append(names, groups...)
	}
	letters, err := results[1].AsXRange()
	if err != nil {
		return false, err
	}
	for _, letter := range letters {
		if letter.FieldValues[wire.FieldGroup] != "" || letter.FieldValues[wire.FieldError] != "" {
			continue // ours
		}
		names = slices.AppendSeq(names, maps.Keys(letter.FieldValues))
	}
	if slices.ContainsFunc(names, func(name string) bool { return wire.IsKryo([]string{name}) }) {
		return true, nil
	}
	if len(names) > 0 {
		return false, nil // StringCodec
	}
	if ours, err := results[0].AsBool(); err != nil || !ours {
		return true, err // it made the topic
	}
	return othersRead(q, ctx, s)
}

// othersRead tells whether a group has a lease that was not taken here: ours come with an epoch, in one step. A consumer in
// Java that is alone in its group has the first partitions.
func othersRead(q *core.Core, ctx context.Context, s core.Source) (bool, error) {
	for _, at := range []core.Source{q.Source(s.Topic, 0), s} {
		groups, err := q.GroupsOf(ctx, at)
		if err != nil {
			return false, err
		}
		for _, g := range groups {
			results := q.Client.DoMulti(ctx,
				q.Client.B().Exists().Key(at.Lease(g.Name)).Build(), q.Client.B().Exists().Key(at.Epoch(g.Name)).Build())
			if err := stream.FirstError(results); err != nil {
				return false, err
			}
			lease, _ := results[0].AsBool() // the server returns numbers
			if epoch, _ := results[1].AsBool(); lease && !epoch {
				return true, nil
			}
		}
	}
	return false, nil
}

// PartDeadLetters moves our dead letters out of the stream that a client in Java lists.
func PartDeadLetters(q *core.Core, ctx context.Context, s core.Source) error {
	after, _ := q.Parted.Get(s.Topic)
	total := int64(0)
	for {
		keys := []string{s.Dlq(), s.Replayed(), s.OwnDeadLetters(), s.OwnReplayed()}
		answer, err := q.Run(ctx, q.Scripts.LetterPart, keys, stream.Behind(after), strconv.Itoa(model.PageSize)).ToArray()
		if err != nil {
			return model.Failure(ctx, "move dead letters of "+s.Topic, err)
		}
		moved, _ := answer[0].AsInt64() // the script returns a number and an id
		last, _ := answer[1].ToString()
		total += moved
		if last == "" {
			break
		}
		after = last
	}
	q.Parted.Put(s.Topic, after)
	if total > 0 {
		q.Cfg.Log.WarnContext(ctx, "streammq: a program in Java reads this topic's dead letters: ours were moved to a stream of their own",
			slog.String("topic", s.Topic), slog.Int64("letters", total), slog.String("key", s.OwnDeadLetters()))
	}
	return nil
}
