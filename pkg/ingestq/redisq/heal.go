package redisq

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	healFirstPause = 100 * time.Millisecond // between the first and the second making of a group, doubled from then on
	healMaxPause   = 5 * time.Second
	healCalm       = time.Minute      // without a loss the pause starts anew
	healLogEvery   = 10 * time.Second // one line for all losses within
)

// healing runs do, and once more after the stream or group that it missed was made.
func (q *Queue) healing(ctx context.Context, do func() error) error {
	err := do()
	if stream.IsMissing(err) {
		if err = q.heal(ctx, err); err == nil {
			err = do()
		}
	}
	if err == nil {
		q.seen.Store(true)
	}
	return err
}

// ask is healing for a question within callTimeout.
func ask[T any](ctx context.Context, q *Queue, doing string, question func(ctx context.Context) (T, error)) (T, error) {
	var answer T
	err := q.healing(ctx, func() (err error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		answer, err = question(call)
		return err
	})
	return answer, failure(ctx, doing, err)
}

// heal makes the group at 0, with its stream: one made at $ would never be given what was added before it. It does so at most so
// often that somebody who deletes them in a loop costs neither CPU nor log (FastStream #2611, #2945, #3106).
// Its error is ingestq.ErrUnavailable within the pause.
func (q *Queue) heal(ctx context.Context, cause error) error {
	q.healMu.Lock()
	defer q.healMu.Unlock()
	now := q.now()
	since := now.Sub(q.healed)
	if !q.healed.IsZero() && since >= 0 && since < q.pause {
		return fmt.Errorf("%w: the group was made %s ago and is missing again", ingestq.ErrUnavailable, since.Round(time.Millisecond))
	}
	made, err := q.createGroup(ctx)
	if err != nil {
		return fmt.Errorf("make group %s on stream %s: %w", q.cfg.Group, q.cfg.StreamKey, err)
	}
	if !made {
		return nil // another member was faster
	}
	if !q.seen.Load() {
		q.log.InfoContext(ctx, "redisq: group made", slog.String("stream", q.cfg.StreamKey), slog.String("group", q.cfg.Group))
		return nil
	}
	q.pause = min(max(healFirstPause, 2*q.pause), healMaxPause)
	if since > healCalm {
		q.pause = healFirstPause
	}
	q.healed = now
	q.metrics.healed.WithLabelValues(q.cfg.StreamKey).Inc()
	q.quiet++
	if now.Sub(q.logged) >= healLogEvery {
		q.log.WarnContext(ctx, "redisq: stream or group was lost and is made again; its tasks come back from the table",
			slog.String("stream", q.cfg.StreamKey), slog.String("group", q.cfg.Group),
			slog.Int("times", q.quiet), slog.Any("error", cause))
		q.logged, q.quiet = now, 0
	}
	return nil
}

// createGroup returns false when the group was there.
func (q *Queue) createGroup(ctx context.Context) (bool, error) {
	command := q.client.B().XgroupCreate().Key(q.cfg.StreamKey).Group(q.cfg.Group).Id("0").Mkstream().Build()
	err := do(ctx, q.client, command).Error()
	if stream.IsError(err, "BUSYGROUP") {
		return false, nil
	}
	return err == nil, err
}
