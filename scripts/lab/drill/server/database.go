package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millweir/millweir/pkg/labserver/commitproxy"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

// absence is how long the database stays away the second time: longer than the leases.
const absence = 10 * time.Second

// firstGoal is how soon after its return the first request must succeed.
const firstGoal = 2 * time.Second

// DatabaseRestart kills MariaDB under load: restarted at once, then away for 10 s. Uploads meanwhile are 503 with Retry-After,
// /readyz says what is missing, no service exits, no outage counts a crash (design D6) or an attempt, which would cost a wait too.
func DatabaseRestart(ctx context.Context, s *stage.Stage) (string, error) {
	var first, ready time.Duration
	return stage.Storm{
		Opts: world.Options{Env: []string{"INGEST_LEASE_MS=5000"}},
		Faults: func(ctx context.Context, c *stage.Cluster) (err error) {
			calm := max(2*time.Second, (s.Load-absence)/3)
			await.Pause(ctx, calm)
			if err := errors.Join(c.SQL.Kill(ctx), c.SQL.Restart(ctx)); err != nil {
				return err
			}
			await.Pause(ctx, calm)
			if err := c.SQL.Kill(ctx); err != nil {
				return err
			}
			if err := errors.Join(whileAway(ctx, c), c.SQL.Restart(ctx)); err != nil {
				return err
			}
			back := time.Now()
			if first, err = firstSuccess(ctx, c, back); err != nil {
				return err
			}
			err = c.AllReady(ctx, stage.LiveLimit)
			ready = time.Since(back)
			await.Pause(ctx, calm)
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			if load.Rude > 0 {
				return "", fmt.Errorf("%d of %d 503 replies had no Retry-After", load.Rude, load.Busy)
			}
			return fmt.Sprintf("first upload accepted %.1f s after its return (goal %.1f s), all ready after %.1f s, no attempt and no crash counted",
				first.Seconds(), firstGoal.Seconds(), ready.Seconds()), stage.Uncounted(ctx, c, "the database's absence")
		},
	}.Run(ctx, s)
}

// firstSuccess is how long after the database's return an upload is accepted again.
func firstSuccess(ctx context.Context, c *stage.Cluster, back time.Time) (time.Duration, error) {
	doc := apiclient.Text(1_000_001, stage.DocBytes)
	if err := await.Until(ctx, stage.LiveLimit, 20*time.Millisecond, func(ctx context.Context) error {
		_, err := c.Client.Upload(ctx, doc)
		return err
	}); err != nil {
		return 0, fmt.Errorf("an upload after the database's return: %w", err)
	}
	took := time.Since(back)
	if took > firstGoal {
		return took, fmt.Errorf("the first upload was accepted %.1f s after the database's return, the goal is %.1f s", took.Seconds(), firstGoal.Seconds())
	}
	return took, nil
}

// whileAway looks at the services without their database, and starts one more.
func whileAway(ctx context.Context, c *stage.Cluster) error {
	end := time.Now().Add(absence)
	if _, err := c.Add("stream-worker"); err != nil { // must wait for the database, not give up
		return err
	}
	for _, p := range c.Procs[:len(c.Procs)-1] {
		if err := await.Until(ctx, 5*time.Second, 50*time.Millisecond, func(ctx context.Context) error {
			status, err := p.Readyz(ctx)
			if err == nil && status != http.StatusServiceUnavailable {
				err = fmt.Errorf("/readyz of %s answers %d without a database", p.Name, status)
			}
			return err
		}); err != nil {
			return err
		}
	}
	var status *apiclient.StatusError
	_, err := c.Client.Upload(ctx, apiclient.Text(1_000_000, stage.DocBytes))
	if !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable || status.RetryAfter <= 0 {
		return fmt.Errorf("an upload without a database is answered with %w, must be 503 with Retry-After", err)
	}
	await.Pause(ctx, time.Until(end))
	return c.AllRun()
}

// cutChance is the part of COMMITs without an answer.
const cutChance = 0.05

// moreCuts is how much longer than the load cuts go on until each kind was met.
const moreCuts = time.Minute

// cutKinds are the transactions that must be hit on both sides of their COMMIT.
var cutKinds = []string{"ACCEPTED", "CLAIMED", "DONE"}

// CommitUnknown cuts COMMITs at random: nobody can tell whether they were done, and all is done exactly once.
func CommitUnknown(ctx context.Context, s *stage.Stage) (string, error) {
	return stage.Storm{
		Opts: world.Options{CutCommits: true},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			c.Commits.Cut(cutChance, s.Random)
			await.Pause(ctx, s.Load)
			err := await.Until(ctx, moreCuts, time.Second, func(context.Context) error { return allCut(c.Commits.Cuts()) })
			c.Commits.Cut(0, nil)
			return errors.Join(err, c.AllRun())
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			cuts, all, hits := c.Commits.Cuts(), 0, ""
			for _, n := range cuts {
				all += n
			}
			for _, kind := range cutKinds {
				hits += fmt.Sprintf(", %s %d/%d", kind, cuts[commitproxy.Cut{What: kind}], cuts[commitproxy.Cut{What: kind, Done: true}])
			}
			attempts, crashes, err := stage.Costs(ctx, c)
			return fmt.Sprintf("%d COMMITs cut (COMMIT lost/answer lost%s), %d attempts and %d crashes counted", all, hits, attempts, crashes), err
		},
	}.Run(ctx, s)
}

// allCut says which kind of transaction has not yet lost both a COMMIT and an answer.
func allCut(cuts map[commitproxy.Cut]int) error {
	for _, kind := range cutKinds {
		if lost, done := cuts[commitproxy.Cut{What: kind}], cuts[commitproxy.Cut{What: kind, Done: true}]; lost == 0 || done == 0 {
			return fmt.Errorf("of %s %d COMMITs were lost and %d answers: both must be met", kind, lost, done)
		}
	}
	return nil
}
