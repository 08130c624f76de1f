package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab"
)

// absence is how long the database stays away the second time: longer than the leases.
const absence = 10 * time.Second

// outages is how often it is killed.
const outages = 2

// databaseRestart kills MariaDB under load: restarted at once, then away for 10 s. Uploads meanwhile are 503 with Retry-After,
// /readyz says what is missing, no service exits, no outage counts a crash.
func databaseRestart(ctx context.Context, s *stage) (string, error) {
	c, err := s.newCluster(ctx, lab.Options{Embedder: slowEmbedder(), Env: []string{"INGEST_LEASE_MS=5000"}}, "ingest-api", "stream-worker", "stream-worker", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: embedTime})
	if err := c.allReady(ctx, liveLimit); err != nil {
		return "", err
	}
	stop := background(ctx, lab.Load{Target: c.client, Clients: 3, Bytes: docBytes, Every: 200 * time.Millisecond})
	defer stop()
	lab.Pause(ctx, lossPause)
	if err := errors.Join(c.SQL.Kill(ctx), c.SQL.Restart(ctx)); err != nil {
		return "", err
	}
	lab.Pause(ctx, lossPause)
	if err := c.SQL.Kill(ctx); err != nil {
		return "", err
	}
	if err := whileAway(ctx, c); err != nil {
		return "", err
	}
	if err := c.SQL.Restart(ctx); err != nil {
		return "", err
	}
	back := time.Now()
	if err := c.allReady(ctx, liveLimit); err != nil {
		return "", err
	}
	ready := time.Since(back)
	lab.Pause(ctx, lossPause)
	load := stop()
	if err := c.verify(ctx, load, nil); err != nil {
		return "", err
	}
	if load.Rude > 0 {
		return "", fmt.Errorf("%d of %d 503 answers had no Retry-After", load.Rude, load.Busy)
	}
	failed, err := spent(ctx, c)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("all ready %.1f s after its return, no crash counted, %d attempts failed with it; %s", ready.Seconds(), failed, summary(load)), nil
}

// spent: an outage counts no crash (design D6), and a task that it met in the middle fails one attempt at most for each.
func spent(ctx context.Context, c *cluster) (failed int, err error) {
	logs, err := lab.Logs(ctx, c.DB.Reader())
	if err != nil {
		return 0, err
	}
	for id, log := range logs {
		last := log[len(log)-1]
		if last.CrashCount > 0 || last.AttemptCount > outages {
			return 0, fmt.Errorf("task %s counts %d attempts and %d crashes for %d outages of the database", id, last.AttemptCount, last.CrashCount, outages)
		}
		failed += last.AttemptCount
	}
	return failed, nil
}

// whileAway looks at the services without their database, and starts one more.
func whileAway(ctx context.Context, c *cluster) error {
	end := time.Now().Add(absence)
	if _, err := c.add("stream-worker"); err != nil { // must wait for the database, not give up
		return err
	}
	for _, p := range c.procs[:len(c.procs)-1] {
		if err := lab.Until(ctx, 5*time.Second, 50*time.Millisecond, func(ctx context.Context) error {
			status, err := p.Readyz(ctx)
			if err == nil && status != http.StatusServiceUnavailable {
				err = fmt.Errorf("/readyz of %s answers %d without a database", p.Name, status)
			}
			return err
		}); err != nil {
			return err
		}
	}
	var status *lab.StatusError
	_, err := c.client.Upload(ctx, lab.Text(1_000_000, docBytes))
	if !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable || status.RetryAfter <= 0 {
		return fmt.Errorf("an upload without a database is answered with %w, must be 503 with Retry-After", err)
	}
	lab.Pause(ctx, time.Until(end))
	return c.allRun()
}
