package server

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	flushTasks  = 10_000
	flushBytes  = 300 // one segment each
	flushGoal   = 15 * time.Second
	flushSettle = 4 * time.Minute
	// flushEmbed is how long the embedding service takes until the loss: the backlog builds up in front of a worker that reads.
	flushEmbed = 5 * time.Second
	// enqueueSlack is INGEST_PROMISE_SLACK_MS. What was accepted less than it before the loss counts as lost only once readers
	// have come that far (design D5).
	enqueueSlack = 2 * time.Second
)

// RedisFlush loses the stream with 10,000 queued tasks at the moment at which the last one was accepted: all are promised
// again soon, and each runs once.
func RedisFlush(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{
		Embedder: stage.SlowEmbedder(), Env: []string{"INGEST_WORKER_CONCURRENCY=32", "INGEST_LEASE_MS=10000"},
	}, "ingest-api", "reclaimer", "stream-worker")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: flushEmbed})
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	load := apiclient.Load{Target: c.Client, Clients: 16, Count: flushTasks, Bytes: flushBytes}.Run(ctx)
	if err := c.Stream.Do(ctx, "FLUSHALL"); err != nil {
		return "", err
	}
	saw, err := enqueuedAgain(ctx, c, time.Now().UTC())
	if err != nil {
		return "", err
	}
	if err := c.Audit(load, nil).Settled(ctx, flushSettle); err != nil {
		return "", fmt.Errorf("no rest: %w%s", err, c.Explain(ctx))
	}
	if err := c.Verify(ctx, load, nil); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s; %s", saw, stage.Summary(load)), nil
}

// enqueuedAgain waits until nothing waits on a promise from before the loss. What was accepted longer than the slack before
// it is enqueued again within the goal, the rest within the goal after the readers have come that far.
func enqueuedAgain(ctx context.Context, c *stage.Cluster, flushed time.Time) (string, error) {
	old := flushed.Add(-enqueueSlack)
	before, err := tables.Waiting(ctx, c.DB.Reader(), flushed, old)
	if err != nil {
		return "", err
	}
	if before.Old == 0 || before.Young == 0 {
		return "", fmt.Errorf("at the loss %d tasks waited that were older than the slack and %d younger: it met no load", before.Old, before.Young)
	}
	c.Embed.Clear()
	var oldBack, passed, youngBack time.Duration
	note := func(at *time.Duration, over bool) {
		if over && *at == 0 {
			*at = time.Since(flushed)
		}
	}
	err = await.Until(ctx, flushSettle, 50*time.Millisecond, func(ctx context.Context) error {
		now, err := tables.Waiting(ctx, c.DB.Reader(), flushed, old)
		if err != nil {
			return err
		}
		note(&oldBack, now.Old == 0)
		note(&passed, now.OldQueued == 0)
		note(&youngBack, now.Young == 0)
		if oldBack == 0 || youngBack == 0 || passed == 0 {
			return fmt.Errorf("of %+v tasks that waited at the loss %+v wait on a promise from before it", before, now)
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case oldBack > flushGoal:
		return "", fmt.Errorf("%d tasks were promised again %.1f s after the loss, the goal is %.1f s", before.Old, oldBack.Seconds(), flushGoal.Seconds())
	case youngBack > passed+flushGoal:
		return "", fmt.Errorf("%d tasks that were accepted right before the loss were promised again %.1f s after it, and the readers had come that far after %.1f s",
			before.Young, youngBack.Seconds(), passed.Seconds())
	}
	return fmt.Sprintf("%d queued tasks promised again in %.1f s (goal %.1f s), %d accepted in the last %.0f s before the loss after %.1f s, when the readers had come that far after %.1f s",
		before.Old, oldBack.Seconds(), flushGoal.Seconds(), before.Young, enqueueSlack.Seconds(), youngBack.Seconds(), passed.Seconds()), nil
}
