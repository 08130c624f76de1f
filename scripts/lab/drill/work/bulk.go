package work

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	bulkTasks  = 10_000
	bulkBytes  = 500
	bulkRate   = 1_000 // tasks a second: half of them take long enough to be interrupted
	bulkReason = "the embedding service is mended"
)

// Bulk lets 10,000 documents fail for one cause, puts them back by one bulk operation, and kills every process that could run it half way:
// each task is put back once, and succeeds.
func Bulk(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{
		Embedder: &embedtest.Options{}, Env: []string{"INGEST_REDIS_MAX_ATTEMPTS=1", "INGEST_LEASE_MS=2000"},
	}, "ingest-api", "stream-worker", "stream-worker", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Refuse})
	load := apiclient.Load{Target: c.Client, Clients: 16, Count: bulkTasks, Bytes: bulkBytes}.Run(ctx)
	if err := everyOneIs(ctx, c, taskstate.StatusDead); err != nil {
		return "", err
	}
	c.Embed.Clear()
	started := time.Now()
	op, err := c.Client.Bulk(ctx, wire.BulkRequest{
		Action: "replay", Filter: `status:DEAD stage:embed error~"500"`, RatePerSecond: bulkRate, Reason: bulkReason,
	})
	if err != nil {
		return "", fmt.Errorf("begin the operation: %w", err)
	}
	at, err := killHalfWay(ctx, c, op.OperationID)
	if err != nil {
		return "", err
	}
	err = await.Until(ctx, stage.SettleLimit, 50*time.Millisecond, func(ctx context.Context) error {
		if op, err = c.Client.Operation(ctx, op.OperationID); err == nil && !op.Status.Terminal() {
			err = fmt.Errorf("operation %s is %s with %d of %d done: %s", op.OperationID, op.Status, op.Done, bulkTasks, op.ErrorMessage)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	took := time.Since(started)
	if op.Status != taskstate.StatusSucceeded || op.Matched == nil || *op.Matched != bulkTasks || op.Done != bulkTasks || op.Failed != 0 {
		return "", fmt.Errorf("the operation ended as %+v, must have done %d tasks", op, bulkTasks)
	}
	if err := c.Verify(ctx, load, map[string]taskstate.Status{op.OperationID: taskstate.StatusSucceeded}); err != nil {
		return "", err
	}
	if err := replayedOnce(ctx, c, load, op.OperationID); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d DEAD tasks put back in %.1f s at %d a second, all workers killed after %d; %s", bulkTasks, took.Seconds(), bulkRate, at,
		stage.Summary(load)), nil
}

// everyOneIs waits until every task has a status.
func everyOneIs(ctx context.Context, c *stage.Cluster, want taskstate.Status) error {
	return await.Until(ctx, stage.SettleLimit, 200*time.Millisecond, func(ctx context.Context) error {
		counts, err := tables.CountStatus(ctx, c.DB.Reader())
		if err == nil && counts[want] != bulkTasks {
			err = fmt.Errorf("tasks by status: %v, want %d %s", counts, bulkTasks, want)
		}
		return err
	})
}

// killHalfWay kills all workers and the reclaimer when half of the operation is done, starts others, and returns how much was done.
func killHalfWay(ctx context.Context, c *stage.Cluster, id string) (done int64, err error) {
	err = await.Until(ctx, stage.SettleLimit, 10*time.Millisecond, func(ctx context.Context) error {
		op, err := c.Client.Operation(ctx, id)
		if done = op.Done; err == nil && done < bulkTasks/2 {
			err = fmt.Errorf("%d tasks are done", done)
		}
		return err
	})
	if err != nil {
		return done, err
	}
	for _, name := range []string{"stream-worker", "reclaimer"} {
		for _, p := range c.Of(name) {
			p.Kill()
			c.Drop(p)
			if _, err := c.Add(name); err != nil {
				return done, err
			}
		}
	}
	op, err := c.Client.Operation(ctx, id)
	if err == nil && op.Done >= bulkTasks {
		err = fmt.Errorf("the operation was over when its worker was killed")
	}
	return op.Done, err
}

// replayedOnce reads the log of each task: the operation has put it back once.
func replayedOnce(ctx context.Context, c *stage.Cluster, load *apiclient.Record, id string) error {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	if err != nil {
		return err
	}
	seen := 0
	for task, log := range logs {
		if task == id {
			continue
		}
		n := 0
		for _, change := range log {
			if change.Reason == taskstate.ReasonReplayed && strings.Contains(change.Message, id) && strings.Contains(change.Message, bulkReason) {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("task %s was put back %d times:\n%s", task, n, tables.Chain(log))
		}
		seen++
	}
	if seen != bulkTasks || len(load.Accepted) != bulkTasks {
		return fmt.Errorf("%d tasks were put back of %d that were accepted", seen, len(load.Accepted))
	}
	return nil
}
