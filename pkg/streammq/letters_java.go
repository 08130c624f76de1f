package streammq

import (
	"context"
	"log/slog"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

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

// lettersApart tells whether the dead letters of a topic go to a stream of our own; see LetterPlace.
func (q *core) lettersApart(ctx context.Context, s source) (bool, error) {
	if q.cfg.Letters != LettersAuto {
		return q.cfg.Letters == LettersOwn, nil
	}
	q.places.mu.Lock()
	known, ok := q.places.known[s.topic]
	q.places.mu.Unlock()
	if ok && q.cfg.Now().Sub(known.seen) < q.cfg.MetaRefresh {
		return known.own, nil
	}
	own, err := q.javaReads(ctx, s)
	if err != nil {
		return false, failure(ctx, "look for the dead letters of "+s.topic, err)
	}
	q.places.mu.Lock()
	q.places.known[s.topic] = foundPlace{own, q.cfg.Now()}
	q.places.mu.Unlock()
	if own && !known.own {
		return own, q.partDeadLetters(ctx, s)
	}
	return own, nil
}

// javaReads tells whether a consumer of the Java original works in the topic that may have another codec than StringCodec: by
// the ids that it notes as acknowledged, and its dead letters, which are in its codec, and without any by its leases.
func (q *core) javaReads(ctx context.Context, s source) (bool, error) {
	partitions, err := q.partitions(ctx, s.topic)
	if err != nil {
		return false, err
	}
	commands := rueidis.Commands{
		q.Client.B().Hexists().Key(metaKey(s.topic)).Field("layout").Build(),
		q.Client.B().Xrevrange().Key(s.dlq()).End("+").Start("-").Count(1).Build(),
	}
	for i := range partitions {
		commands = append(commands, q.Client.B().Hkeys().Key(q.source(s.topic, i).commit()).Build())
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
		if letter.FieldValues[fieldGroup] != "" || letter.FieldValues[fieldError] != "" {
			continue // ours
		}
		for name := range letter.FieldValues {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if isKryo([]string{name}) {
			return true, nil
		}
	}
	if len(names) > 0 {
		return false, nil // StringCodec
	}
	if ours, err := results[0].AsBool(); err != nil || !ours {
		return true, err // it made the topic
	}
	return q.othersRead(ctx, s)
}

// othersRead tells whether a group has a lease that was not taken here: ours come with an epoch, in one step. A consumer in
// Java that is alone in its group has the first partitions.
func (q *core) othersRead(ctx context.Context, s source) (bool, error) {
	for _, at := range []source{q.source(s.topic, 0), s} {
		groups, err := q.groupsOf(ctx, at)
		if err != nil {
			return false, err
		}
		for _, g := range groups {
			results := q.Client.DoMulti(ctx,
				q.Client.B().Exists().Key(at.lease(g.Name)).Build(), q.Client.B().Exists().Key(at.epoch(g.Name)).Build())
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

// partDeadLetters moves our dead letters out of the stream that a client in Java lists.
func (q *core) partDeadLetters(ctx context.Context, s source) error {
	q.places.mu.Lock()
	after := q.places.parted[s.topic]
	q.places.mu.Unlock()
	total := int64(0)
	for {
		keys := []string{s.dlq(), s.replayed(), s.ownDeadLetters(), s.ownReplayed()}
		answer, err := q.Run(ctx, q.scripts.LetterPart, keys, stream.Behind(after), strconv.Itoa(pageSize)).ToArray()
		if err != nil {
			return failure(ctx, "move dead letters of "+s.topic, err)
		}
		moved, _ := answer[0].AsInt64() // the script returns a number and an id
		last, _ := answer[1].ToString()
		total += moved
		if last == "" {
			break
		}
		after = last
	}
	q.places.mu.Lock()
	q.places.parted[s.topic] = after
	q.places.mu.Unlock()
	if total > 0 {
		q.cfg.Log.WarnContext(ctx, "streammq: a program in Java reads this topic's dead letters: ours were moved to a stream of their own",
			slog.String("topic", s.topic), slog.Int64("letters", total), slog.String("key", s.ownDeadLetters()))
	}
	return nil
}
