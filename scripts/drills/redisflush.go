package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/scripts/lab"
)

const (
	flushTasks  = 10_000
	flushBytes  = 300 // one segment each
	flushGoal   = 15 * time.Second
	flushSettle = 4 * time.Minute
	// promiseSlack is INGEST_PROMISE_SLACK_MS, and a little more. What was accepted less than it before the loss counts as
	// lost only once readers have come that far (design D5), and nobody reads here.
	promiseSlack = 3 * time.Second
)

// redisFlush loses the stream with 10,000 queued tasks: all are on it again soon, and each runs once.
func redisFlush(ctx context.Context, s *stage) (string, error) {
	c, err := s.newCluster(ctx, lab.Options{Env: []string{"INGEST_WORKER_CONCURRENCY=32", "INGEST_LEASE_MS=10000"}}, "ingest-api", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	load := lab.Load{Target: c.client, Clients: 16, Count: flushTasks, Bytes: flushBytes}.Run(ctx)
	lab.Pause(ctx, promiseSlack)
	if err := c.Stream.Do(ctx, "FLUSHALL"); err != nil {
		return "", err
	}
	flushed := time.Now()
	if err := lab.Until(ctx, time.Minute, 100*time.Millisecond, func(ctx context.Context) error {
		entries, err := c.Stream.Entries(ctx)
		if err == nil && len(entries) < flushTasks {
			err = fmt.Errorf("%d of %d tasks are on the stream", len(entries), flushTasks)
		}
		return err
	}); err != nil {
		return "", err
	}
	back := time.Since(flushed)
	if back > flushGoal {
		return "", fmt.Errorf("all %d tasks were on the stream again after %.1f s, the goal is %.1f s", flushTasks, back.Seconds(), flushGoal.Seconds())
	}
	if _, err := c.add("stream-worker"); err != nil {
		return "", err
	}
	if err := c.audit(load, nil).Settled(ctx, flushSettle); err != nil {
		return "", fmt.Errorf("no rest: %w%s", err, c.explain(ctx))
	}
	if err := c.verify(ctx, load, nil); err != nil {
		return "", err
	}
	return fmt.Sprintf("all %d queued tasks on the stream again in %.1f s (goal %.1f s); %s", flushTasks, back.Seconds(), flushGoal.Seconds(), summary(load)), nil
}
