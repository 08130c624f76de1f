package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

// redisAway is how long Redis is away at each of its restarts.
const redisAway = 3 * time.Second

// RedisLoss takes the queue away in every way, under load: nothing accepted is lost, nothing runs twice to be seen, nobody exits.
func RedisLoss(ctx context.Context, s *stage.Stage) (string, error) {
	return stage.Storm{
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			losses := []struct {
				name string
				do   func() error
			}{
				{"kill -9 and restart", func() error { return redisRestart(ctx, c, false) }},
				{"empty start", func() error { return redisRestart(ctx, c, true) }},
				{"FLUSHALL", func() error { return c.Stream.Do(ctx, "FLUSHALL") }},
				{"XGROUP DESTROY", func() error { return c.Stream.Each(ctx, 2, "XGROUP", "DESTROY", world.Group) }},
				{"DEL of the stream", func() error { return c.Stream.Each(ctx, 1, "DEL") }},
			}
			for _, l := range losses {
				await.Pause(ctx, s.Load/time.Duration(len(losses)+1))
				if err := errors.Join(l.do(), c.AllRun()); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
			}
			await.Pause(ctx, s.Load/time.Duration(len(losses)+1))
			return nil
		},
		Judge: func(_ context.Context, _ *stage.Cluster, load *apiclient.Record) (string, error) {
			return "restart, empty start, FLUSHALL, XGROUP DESTROY, DEL", stage.Undisturbed(load)
		},
	}.Run(ctx, s)
}

// redisRestart kills Redis and starts it again after a while, with its data or without.
func redisRestart(ctx context.Context, c *stage.Cluster, empty bool) error {
	if err := c.Redis.Kill(ctx); err != nil {
		return err
	}
	await.Pause(ctx, redisAway) // uploads must be accepted meanwhile
	if empty {
		if err := os.RemoveAll(filepath.Join(c.Redis.Dir, "data")); err != nil {
			return err
		}
		defer c.Stream.Lost()
	}
	return c.Redis.Restart(ctx)
}
