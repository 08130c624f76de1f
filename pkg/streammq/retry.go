package streammq

import (
	"context"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

const adoptPortion = 100 // items looked at by one ZSCAN

// javaGrace is how long an item of another's is left to its own mover once it is due. After it there is no such mover any more.
const javaGrace = time.Minute

// adopt gives the items that an earlier version has put off the names that they have now.
func (q *core) adopt(ctx context.Context, src source) error {
	prefix := src.items()
	if prefix == "" {
		return nil
	}
	for cursor := uint64(0); ; {
		page, err := q.Client.Do(ctx, q.Client.B().Zscan().Key(src.retry()).Cursor(cursor).Count(adoptPortion).Build()).AsScanEntry()
		if err != nil {
			return failure(ctx, "list retries", err)
		}
		args := []string{prefix}
		for i := 0; i < len(page.Elements); i += 2 { // each with its score
			if shortItem.MatchString(page.Elements[i]) {
				args = append(args, page.Elements[i])
			}
		}
		if len(args) > 1 {
			if err := q.Run(ctx, q.scripts.Adopt, []string{src.retry()}, args...).Error(); err != nil {
				return failure(ctx, "rename retries", err)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}

// shortItem is the name of an item of ours without the key before it.
var shortItem = regexp.MustCompile(`^[^:]+:\d+:\d+-\d+$`)

// moveDue moves up to most items and returns how many were due, and the time until the next one is, or -1.
func (q *core) moveDue(ctx context.Context, src source, most int) (int, time.Duration, error) {
	answer, err := q.Run(ctx, q.scripts.RetryDue, []string{src.retry(), src.quarantine()}, strconv.Itoa(most), src.items(), stream.Millis(javaGrace)).ToArray()
	if err != nil {
		return 0, 0, failure(ctx, "list retries", err)
	}
	names, err := answer[0].AsStrSlice()
	if err != nil {
		return 0, 0, err
	}
	ms, err := answer[1].AsInt64()
	if err != nil {
		return 0, 0, err
	}
	return len(names), time.Duration(ms) * time.Millisecond, q.move(ctx, src, names)
}

func (q *core) move(ctx context.Context, src source, names []string) error {
	reads := make(rueidis.Commands, len(names))
	for i, name := range names {
		reads[i] = q.Client.B().Hgetall().Key(src.item(name)).Build()
	}
	var calls []stream.Call
	for i, r := range q.Client.DoMulti(ctx, reads...) {
		fields, err := r.AsStrMap()
		if err != nil && !stream.IsError(err, "WRONGTYPE") {
			return failure(ctx, "read retry item", err)
		}
		to, ok := q.target(src, names[i], fields)
		if !ok {
			args := []string{names[i], strings.TrimPrefix(names[i], src.items())}
			calls = append(calls, stream.Call{Script: q.scripts.RetryQuarantine, Keys: []string{src.retry(), src.quarantine()}, Args: args})
			continue
		}
		keys := []string{src.retry(), src.item(names[i]), to.stream()}
		args := []string{names[i], fields[fieldPartition], strconv.Itoa(to.part), encodeTime(q.cfg.Now())}
		calls = append(calls, stream.Call{Script: q.scripts.RetryMove, Keys: keys, Args: args})
	}
	for i, r := range q.RunAll(ctx, calls) {
		n, err := r.AsInt64()
		if err != nil {
			return failure(ctx, "move retry item "+names[i], err)
		}
		if n == 1 {
			q.moved(ctx, src, names[i], calls[i].Script == q.scripts.RetryMove)
		}
	}
	return nil
}

func (q *core) moved(ctx context.Context, src source, name string, whole bool) {
	if whole {
		q.observe(Event{Kind: EventMoved, Topic: src.topic, Partition: -1, Count: 1})
		return
	}
	q.observe(Event{Kind: EventQuarantined, Topic: src.topic, Partition: -1, Count: 1})
	q.cfg.Log.ErrorContext(ctx, "streammq: retry item is malformed and was put aside", slog.String("topic", src.topic),
		slog.String("item", name), slog.String("key", src.item(name)), slog.String("list", src.quarantine()))
}

// target is the partition that a retry item goes back to: the first one if it names none, as in the Java original. False when
// the item cannot be read, is of another topic, or names a partition that nobody reads.
func (q *core) target(s source, name string, fields map[string]string) (source, bool) {
	flat := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		flat = append(flat, name, value)
	}
	e, err := decodeEntry(flat)
	if err != nil || e.partition >= MaxPartitions {
		return s, false
	}
	if s.apart() {
		return s, fields[fieldPartition] == strconv.Itoa(s.part) // another partition's stream is in another slot
	}
	if !shortItem.MatchString(strings.TrimPrefix(name, s.items())) {
		known, ok := q.topics.get(s.topic)
		if e.topic != "" && e.topic != s.topic || ok && e.partition >= known.partitions {
			return s, false
		}
	}
	s.part = e.partition
	return s, true
}
