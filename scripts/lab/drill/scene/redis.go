package scene

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

// redisAway is how long Redis is away at each of its restarts.
const redisAway = 3 * time.Second

// RedisLoss takes the queue away in every way, under load: nothing accepted is lost, nothing runs twice to be seen, nobody exits.
func RedisLoss(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{Embedder: stage.SlowEmbedder()}, "ingest-api", "stream-worker", "stream-worker", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	stop := stage.Background(ctx, apiclient.Load{Target: c.Client, Clients: 3, Bytes: stage.DocBytes, Every: 200 * time.Millisecond})
	losses := []struct {
		Name string
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
		if err := l.do(); err != nil {
			return "", fmt.Errorf("%s: %w", l.Name, err)
		}
		if err := c.AllRun(); err != nil {
			return "", fmt.Errorf("after %s: %w", l.Name, err)
		}
	}
	await.Pause(ctx, s.Load/time.Duration(len(losses)+1))
	load := stop()
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	if err := c.Verify(ctx, load, nil); err != nil {
		return "", err
	}
	if load.Busy+load.Unknown > 0 {
		return "", fmt.Errorf("uploads depend on Redis: %d answered 503, %d broke off", load.Busy, load.Unknown)
	}
	return fmt.Sprintf("restart, empty start, FLUSHALL, XGROUP DESTROY, DEL; %s", stage.Summary(load)), nil
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
