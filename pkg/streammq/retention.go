package streammq

import (
	"context"
	"strings"

	"github.com/redis/rueidis"
)

const bodyPortion = 100

func (q *core) trim(ctx context.Context, s source, r Retention) (int, error) {
	n, _, err := q.trimTo(ctx, s, r, false)
	return n, err
}

func (q *core) trimTo(ctx context.Context, s source, r Retention, dryRun bool) (total int, border string, err error) {
	total, border, err = q.trimStream(ctx, s.stream(), r, dryRun)
	if err != nil || dryRun {
		return total, border, err
	}
	if total > 0 {
		q.observe(Event{Kind: EventTrimmed, Topic: s.topic, Partition: s.part, Count: total})
	}
	return total, border, q.removeBodies(ctx, s, border)
}

// trimStream is trimTo of a stream of any key, without what lies beside it.
func (q *core) trimStream(ctx context.Context, key string, r Retention, dryRun bool) (total int, border string, err error) {
	total, border, err = q.Trim(ctx, q.scripts.Trim, key, r, dryRun)
	return total, border, failure(ctx, "trim "+key, err)
}

// removeBodies removes payloads beside the stream whose entries all groups have finished: those of a millisecond before
// the border's. The payload goes before its note, so that a crash between leaves nothing behind.
// A retry or a dead letter needs none: it carries the payload itself.
func (q *core) removeBodies(ctx context.Context, s source, border string) error {
	if border == "" {
		return nil
	}
	below, _, _ := strings.Cut(border, "-")
	for {
		uuids, err := q.Client.Do(ctx, q.Client.B().Zrangebyscore().Key(s.bodies()).Min("-inf").Max("("+below).
			Limit(0, bodyPortion).Build()).AsStrSlice()
		if err != nil || len(uuids) == 0 {
			return failure(ctx, "list payloads beside "+s.stream(), err)
		}
		keys := make([]string, len(uuids))
		for i, uuid := range uuids {
			keys[i] = s.body(uuid)
		}
		results := q.Client.DoMulti(ctx, rueidis.Commands{
			q.Client.B().Unlink().Key(keys...).Build(),
			q.Client.B().Zrem().Key(s.bodies()).Member(uuids...).Build(),
		}...)
		for _, r := range results { // in turn: no note goes before its payload
			if err := r.Error(); err != nil {
				return failure(ctx, "remove payloads beside "+s.stream(), err)
			}
		}
	}
}

// oneID is the id of the first entry that was read; "": there is none.
func oneID(r rueidis.RedisResult) string {
	entries, err := r.AsXRange()
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].ID
}
