package work

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

// deadStore is an address on which nobody listens (contract §7).
const deadStore = "http://127.0.0.1:65530"

// Reproduction is contract §7 word by word: RETRYING/1, then DEAD/2, an entry in the DLQ, nothing pending.
func Reproduction(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{Env: []string{
		"CHROMA_BASE_URL=" + deadStore, "INGEST_REDIS_MAX_ATTEMPTS=2", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=0",
		"INGEST_REDIS_RETRY_MAX_BACKOFF_MS=0", "INGEST_REDIS_RECLAIM_IDLE_MS=0",
	}}, "ingest-api", "stream-worker", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	started := time.Now()
	task, err := c.Client.Upload(ctx, apiclient.Text(1, stage.DocBytes))
	if err != nil {
		return "", fmt.Errorf("upload: %w", err)
	}
	if err := c.Verify(ctx, nil, map[string]taskstate.Status{task.TaskID: taskstate.StatusDead}); err != nil {
		return "", err
	}
	took := time.Since(started)
	if err := exactly(ctx, c, task.TaskID); err != nil {
		return "", err
	}
	n, err := c.Stream.Len(ctx, world.DLQKey)
	if err != nil || n < 1 {
		return "", fmt.Errorf("XLEN %s is %d (%w), must be at least 1", world.DLQKey, n, err)
	}
	now, err := c.Client.Task(ctx, task.TaskID)
	if err != nil {
		return "", err
	}
	if now.Status != "DEAD" || now.AttemptCount != 2 || now.NextRetryAt != nil ||
		!strings.Contains(now.LastError, "127.0.0.1:65530") || !strings.Contains(now.LastError, "connection refused") {
		return "", fmt.Errorf("the API says %+v", now)
	}
	return fmt.Sprintf("RETRYING/1 → DEAD/2 in %.1f s, XLEN dlq %d, XPENDING 0, lastError %q", took.Seconds(), n, now.LastError), nil
}

// exactly compares the task's log with the one that the contract promises.
func exactly(ctx context.Context, c *stage.Cluster, id string) error {
	log, err := tables.Log(ctx, c.DB.Reader(), id)
	if err != nil {
		return err
	}
	type step struct {
		from, to taskstate.Status
		attempt  int
	}
	want := []step{
		{taskstate.StatusNone, taskstate.StatusQueued, 0},
		{taskstate.StatusQueued, taskstate.StatusRunning, 0},
		{taskstate.StatusRunning, taskstate.StatusRetrying, 1},
		{taskstate.StatusRetrying, taskstate.StatusRunning, 1},
		{taskstate.StatusRunning, taskstate.StatusDead, 2},
	}
	var got []step
	for _, t := range log {
		got = append(got, step{t.From, t.To, t.AttemptCount})
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("log of %s is %v, must be %v", id, got, want)
	}
	return nil
}
