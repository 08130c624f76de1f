package redisq

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
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

// group is the group of the stream. It makes both when they are missing, at most so often that somebody who deletes them
// in a loop costs neither CPU nor log (FastStream #2611, #2945, #3106).
type group struct {
	*Publisher
	seen atomic.Bool // the group was there: making it is no loss before

	healMu sync.Mutex
	healed time.Time
	pause  time.Duration
	logged time.Time
	quiet  int // losses since the last line
}

// healing runs do, and once more after the stream or group that it missed was made.
func (g *group) healing(ctx context.Context, do func() error) error {
	err := do()
	if stream.IsMissing(err) {
		if err = g.heal(ctx, err); err == nil {
			err = do()
		}
	}
	if err == nil {
		g.seen.Store(true)
	}
	return err
}

// ask is healing for a question within callTimeout.
func ask[T any](ctx context.Context, g *group, doing string, question func(ctx context.Context) (T, error)) (T, error) {
	var answer T
	err := g.healing(ctx, func() (err error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		answer, err = question(call)
		return err
	})
	return answer, failure(ctx, doing, err)
}

// heal makes the group at 0, with its stream: one made at $ would never be given what was added before it.
// Its error is ingestq.ErrUnavailable within the pause.
func (g *group) heal(ctx context.Context, cause error) error {
	g.healMu.Lock()
	defer g.healMu.Unlock()
	now := g.now()
	since := now.Sub(g.healed)
	if !g.healed.IsZero() && since >= 0 && since < g.pause {
		return fmt.Errorf("%w: the group was made %s ago and is missing again", ingestq.ErrUnavailable, since.Round(time.Millisecond))
	}
	made, err := g.createGroup(ctx)
	if err != nil {
		return fmt.Errorf("make group %s on stream %s: %w", g.cfg.Group, g.cfg.StreamKey, err)
	}
	if !made {
		return nil // another member was faster
	}
	if !g.seen.Load() {
		g.log.InfoContext(ctx, "redisq: group made", slog.String("stream", g.cfg.StreamKey), slog.String("group", g.cfg.Group))
		return nil
	}
	g.pause = min(max(healFirstPause, 2*g.pause), healMaxPause)
	if since > healCalm {
		g.pause = healFirstPause
	}
	g.healed = now
	g.metrics.healed.WithLabelValues(g.cfg.StreamKey).Inc()
	g.quiet++
	if now.Sub(g.logged) >= healLogEvery {
		g.log.WarnContext(ctx, "redisq: stream or group was lost and is made again; its tasks come back from the table",
			slog.String("stream", g.cfg.StreamKey), slog.String("group", g.cfg.Group),
			slog.Int("times", g.quiet), slog.Any("error", cause))
		g.logged, g.quiet = now, 0
	}
	return nil
}

// createGroup returns false when the group was there.
func (g *group) createGroup(ctx context.Context) (bool, error) {
	command := g.client.B().XgroupCreate().Key(g.cfg.StreamKey).Group(g.cfg.Group).Id("0").Mkstream().Build()
	err := do(ctx, g.client, command).Error()
	if stream.IsError(err, "BUSYGROUP") {
		return false, nil
	}
	return err == nil, err
}
