// Package retry adds messages that wait apart to their streams again when they are due.
package retry

import (
	"context"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const adoptPortion = 100 // items looked at by one ZSCAN

// javaGrace is how long an item of another's is left to its own mover once it is due. After it there is no such mover any more.
const javaGrace = time.Minute

// Adopt gives the items that an earlier version has put off the names that they have now.
func Adopt(q *core.Core, ctx context.Context, src core.Source) error {
	prefix := src.Items()
	if prefix == "" {
		return nil
	}
	for cursor := uint64(0); ; {
		page, err := q.Client.Do(ctx, q.Client.B().Zscan().Key(src.Retry()).Cursor(cursor).Count(adoptPortion).Build()).AsScanEntry()
		if err != nil {
			return model.Failure(ctx, "list retries", err)
		}
		args := []string{prefix}
		for i := 0; i < len(page.Elements); i += 2 { // each with its score
			if shortItem.MatchString(page.Elements[i]) {
				args = append(args, page.Elements[i])
			}
		}
		if len(args) > 1 {
			if err := q.Run(ctx, q.Scripts.Adopt, []string{src.Retry()}, args...).Error(); err != nil {
				return model.Failure(ctx, "rename retries", err)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}

// shortItem is the name of an item of ours without the key before it.
var shortItem = regexp.MustCompile(`^[^:]+:\d+:\d+-\d+$`)

// MoveDue moves up to most items and returns how many were due, and the time until the next one is, or -1.
func MoveDue(q *core.Core, ctx context.Context, src core.Source, most int) (int, time.Duration, error) {
	answer, err := q.Run(ctx, q.Scripts.RetryDue, []string{src.Retry(), src.Quarantine()}, strconv.Itoa(most), src.Items(), stream.Millis(javaGrace)).ToArray()
	if err != nil {
		return 0, 0, model.Failure(ctx, "list retries", err)
	}
	names, err := answer[0].AsStrSlice()
	if err != nil {
		return 0, 0, err
	}
	ms, err := answer[1].AsInt64()
	if err != nil {
		return 0, 0, err
	}
	return len(names), time.Duration(ms) * time.Millisecond, Move(q, ctx, src, names)
}

func Move(q *core.Core, ctx context.Context, src core.Source, names []string) error {
	reads := make(rueidis.Commands, len(names))
	for i, name := range names {
		reads[i] = q.Client.B().Hgetall().Key(src.Item(name)).Build()
	}
	var calls []stream.Call
	for i, r := range q.Client.DoMulti(ctx, reads...) {
		fields, err := r.AsStrMap()
		if err != nil && !stream.IsError(err, "WRONGTYPE") {
			return model.Failure(ctx, "read retry item", err)
		}
		to, ok := Target(q, src, names[i], fields)
		if !ok {
			args := []string{names[i], strings.TrimPrefix(names[i], src.Items())}
			calls = append(calls, stream.Call{Script: q.Scripts.RetryQuarantine, Keys: []string{src.Retry(), src.Quarantine()}, Args: args})
			continue
		}
		keys := []string{src.Retry(), src.Item(names[i]), to.Stream()}
		args := []string{names[i], fields[wire.FieldPartition], strconv.Itoa(to.Part), wire.EncodeTime(q.Cfg.Now())}
		calls = append(calls, stream.Call{Script: q.Scripts.RetryMove, Keys: keys, Args: args})
	}
	for i, r := range q.RunAll(ctx, calls) {
		n, err := r.AsInt64()
		if err != nil {
			return model.Failure(ctx, "move retry item "+names[i], err)
		}
		if n == 1 {
			moved(q, ctx, src, names[i], calls[i].Script == q.Scripts.RetryMove)
		}
	}
	return nil
}

func moved(q *core.Core, ctx context.Context, src core.Source, name string, whole bool) {
	if whole {
		q.Observe(model.Event{Kind: model.EventMoved, Topic: src.Topic, Partition: -1, Count: 1})
		return
	}
	q.Observe(model.Event{Kind: model.EventQuarantined, Topic: src.Topic, Partition: -1, Count: 1})
	q.Cfg.Log.ErrorContext(ctx, "streammq: retry item is malformed and was put aside", slog.String("topic", src.Topic),
		slog.String("item", name), slog.String("key", src.Item(name)), slog.String("list", src.Quarantine()))
}

// Target is the partition that a retry item goes back to: the first one if it names none, as in the Java original. False when
// the item cannot be read, is of another topic, or names a partition that nobody reads.
func Target(q *core.Core, s core.Source, name string, fields map[string]string) (core.Source, bool) {
	e, err := wire.DecodeEntry(wire.Flat(fields))
	if err != nil || e.Partition >= model.MaxPartitions {
		return s, false
	}
	if s.Apart() {
		return s, fields[wire.FieldPartition] == strconv.Itoa(s.Part) // another partition's stream is in another slot
	}
	if !shortItem.MatchString(strings.TrimPrefix(name, s.Items())) {
		known, ok := q.Topics.Get(s.Topic)
		if e.Topic != "" && e.Topic != s.Topic || ok && e.Partition >= known.Partitions {
			return s, false
		}
	}
	s.Part = e.Partition
	return s, true
}
