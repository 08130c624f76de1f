package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/world"
)

// redisAway is how long Redis is away at each of its restarts.
const redisAway = 3 * time.Second

// redisLoss takes the queue away in every way, under load: nothing accepted is lost, nothing runs twice to be seen, nobody exits.
func redisLoss(ctx context.Context, s *stage) (string, error) {
	c, err := s.newCluster(ctx, world.Options{Embedder: slowEmbedder()}, "ingest-api", "stream-worker", "stream-worker", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: embedTime})
	if err := c.allReady(ctx, liveLimit); err != nil {
		return "", err
	}
	stop := background(ctx, apiclient.Load{Target: c.client, Clients: 3, Bytes: docBytes, Every: 200 * time.Millisecond})
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
		await.Pause(ctx, s.load/time.Duration(len(losses)+1))
		if err := l.do(); err != nil {
			return "", fmt.Errorf("%s: %w", l.name, err)
		}
		if err := c.allRun(); err != nil {
			return "", fmt.Errorf("after %s: %w", l.name, err)
		}
	}
	await.Pause(ctx, s.load/time.Duration(len(losses)+1))
	load := stop()
	if err := c.allReady(ctx, liveLimit); err != nil {
		return "", err
	}
	if err := c.verify(ctx, load, nil); err != nil {
		return "", err
	}
	if load.Busy+load.Unknown > 0 {
		return "", fmt.Errorf("uploads depend on Redis: %d answered 503, %d broke off", load.Busy, load.Unknown)
	}
	return fmt.Sprintf("restart, empty start, FLUSHALL, XGROUP DESTROY, DEL; %s", summary(load)), nil
}

// redisRestart kills Redis and starts it again after a while, with its data or without.
func redisRestart(ctx context.Context, c *cluster, empty bool) error {
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
