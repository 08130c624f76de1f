package core

import (
	"context"
	"strings"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

const bodyPortion = 100

func (q *Core) TrimSource(ctx context.Context, s Source, r model.Retention) (int, error) {
	n, _, err := q.TrimTo(ctx, s, r, false)
	return n, err
}

func (q *Core) TrimTo(ctx context.Context, s Source, r model.Retention, dryRun bool) (total int, border string, err error) {
	total, border, err = q.TrimStream(ctx, s.Stream(), r, dryRun)
	if err != nil || dryRun {
		return total, border, err
	}
	if total > 0 {
		q.Observe(model.Event{Kind: model.EventTrimmed, Topic: s.Topic, Partition: s.Part, Count: total})
	}
	return total, border, q.RemoveBodies(ctx, s, border)
}

// TrimStream is trimTo of a stream of any key, without what lies beside it.
func (q *Core) TrimStream(ctx context.Context, key string, r model.Retention, dryRun bool) (total int, border string, err error) {
	total, border, err = q.Trim(ctx, q.Scripts.Trim, key, r, dryRun)
	return total, border, model.Failure(ctx, "trim "+key, err)
}

// RemoveBodies removes payloads beside the stream whose entries all groups have finished: those of a millisecond before
// the border's. The payload goes before its note, so that a crash between leaves nothing behind.
// A retry or a dead letter needs none: it carries the payload itself.
func (q *Core) RemoveBodies(ctx context.Context, s Source, border string) error {
	if border == "" {
		return nil
	}
	below, _, _ := strings.Cut(border, "-")
	for {
		uuids, err := q.Client.Do(ctx, q.Client.B().Zrangebyscore().Key(s.Bodies()).Min("-inf").Max("("+below).
			Limit(0, bodyPortion).Build()).AsStrSlice()
		if err != nil || len(uuids) == 0 {
			return model.Failure(ctx, "list payloads beside "+s.Stream(), err)
		}
		keys := make([]string, len(uuids))
		for i, uuid := range uuids {
			keys[i] = s.Body(uuid)
		}
		results := q.Client.DoMulti(ctx, rueidis.Commands{
			q.Client.B().Unlink().Key(keys...).Build(),
			q.Client.B().Zrem().Key(s.Bodies()).Member(uuids...).Build(),
		}...)
		for _, r := range results { // in turn: no note goes before its payload
			if err := r.Error(); err != nil {
				return model.Failure(ctx, "remove payloads beside "+s.Stream(), err)
			}
		}
	}
}

// OneID is the id of the first entry that was read; "": there is none.
func OneID(r rueidis.RedisResult) string {
	entries, err := r.AsXRange()
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].ID
}
