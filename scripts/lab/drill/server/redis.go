package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
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
				{"XGROUP DESTROY", func() error { return c.Stream.DestroyGroups(ctx) }},
				{"DEL of the stream", func() error { return c.Stream.Delete(ctx) }},
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

// promotionLimit is how long the sentinels may take to promote the other server.
const promotionLimit = 20 * time.Second

// RedisFailover kills the primary, lets the sentinels promote the replica, brings the old one back and kills the new one.
// The failover is asynchronous and may forget entries that were acknowledged: no task may notice.
func RedisFailover(ctx context.Context, s *stage.Stage) (string, error) {
	const failovers = 2
	var promotions []string
	return stage.Storm{
		Opts: world.Options{Sentinel: true},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			primary, other := c.Sentinels.Primary, c.Sentinels.Replica
			for range failovers {
				calm := s.Load / (3 * failovers)
				await.Pause(ctx, calm)
				if err := primary.Kill(ctx); err != nil {
					return err
				}
				killed := time.Now()
				if err := promoted(ctx, other); err != nil {
					return err
				}
				promotions = append(promotions, fmt.Sprintf("%.1f s", time.Since(killed).Seconds()))
				await.Pause(ctx, calm)
				if err := errors.Join(primary.Restart(ctx), c.AllRun()); err != nil {
					return err
				}
				if err := follows(ctx, primary, other); err != nil {
					return err
				}
				await.Pause(ctx, calm)
				primary, other = other, primary
			}
			return nil
		},
		Judge: func(_ context.Context, _ *stage.Cluster, load *apiclient.Record) (string, error) {
			return fmt.Sprintf("%d failovers, promoted after %v", failovers, promotions), stage.Undisturbed(load)
		},
	}.Run(ctx, s)
}

// promoted waits until a server takes writes.
func promoted(ctx context.Context, s *labserver.Server) error {
	return await.Until(ctx, promotionLimit, 20*time.Millisecond, func(ctx context.Context) error {
		answer, err := s.RedisCommand(ctx, "SET", "drill:primary", "1")
		if err == nil && answer != "+OK" {
			err = fmt.Errorf("%s answers %q to a write", s.Addr, answer)
		}
		return err
	})
}

// follows waits until the sentinels have made a server that came back the replica of the new primary, with its data.
func follows(ctx context.Context, s, primary *labserver.Server) error {
	return await.Until(ctx, promotionLimit, 50*time.Millisecond, func(ctx context.Context) error {
		// The primary counts replicas that have acknowledged all of its writes.
		answer, err := primary.RedisCommand(ctx, "WAIT", "1", "100")
		if err == nil && answer != ":1" {
			err = fmt.Errorf("%s does not follow %s: WAIT answers %q", s.Addr, primary.Addr, answer)
		}
		return err
	})
}

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
		Embedder: &embedtest.Options{}, Env: []string{"INGEST_WORKER_CONCURRENCY=32", "INGEST_LEASE_MS=10000"},
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
	if err := c.Audit(load, nil).Rest(ctx, flushSettle); err != nil {
		return "", err
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

const (
	// silentRest is the first time-out (2 s) with room for what was under way when Redis fell silent.
	silentRest = 4 * time.Second
	// silentMost is the longest that 99 of 100 uploads may take while Redis says nothing. A machine on which they take nearly
	// as long beside a Redis that answers is judged by that: silentRatio times as long.
	silentMost  = 200 * time.Millisecond
	silentRatio = 1.5
	// silentClients upload beside the load of the storm, each as fast as it is answered but for a rest.
	silentClients = 2
	// firstSilent is the number of their first document beside a silent Redis, firstAnswered of that before: far from the load's.
	firstSilent   = 2_000_000
	firstAnswered = 3_000_000
)

// RedisSilent pauses Redis under load: its connections stay open and say nothing. Uploads wait for it once and then leave it alone.
func RedisSilent(ctx context.Context, s *stage.Stage) (string, error) {
	var took, before []time.Duration
	extra := &apiclient.Record{Accepted: map[string]apiclient.Doc{}, Other: map[int]int{}}
	return stage.Storm{
		Opts: world.Options{Env: stage.Retrying},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			var err error
			if before, err = timed(ctx, c, extra, firstAnswered, s.Load/4); err != nil {
				return err
			}
			if err := c.Redis.Pause(); err != nil {
				return err
			}
			await.Pause(ctx, silentRest)
			took, err = timed(ctx, c, extra, firstSilent, max(s.Load/2-silentRest, 2*silentRest))
			err = errors.Join(err, c.Redis.Continue())
			await.Pause(ctx, s.Load/4)
			return errors.Join(err, c.AllRun())
		},
		Forgive: func(load *apiclient.Record) { load.Add(extra) },
		Judge: func(_ context.Context, _ *stage.Cluster, load *apiclient.Record) (string, error) {
			if len(took) == 0 || len(before) == 0 || load.Busy+load.Unknown > 0 {
				return "", fmt.Errorf("uploads depend on Redis: %d measured, %d answered 503, %d broke off", len(took), load.Busy, load.Unknown)
			}
			slices.Sort(took)
			slices.Sort(before)
			allowed := max(silentMost, time.Duration(silentRatio*float64(p99(before))))
			saw := fmt.Sprintf("%d uploads beside a silent Redis: p50 %s, p99 %s; p99 before %s", len(took),
				took[len(took)/2].Round(time.Millisecond), p99(took).Round(time.Millisecond), p99(before).Round(time.Millisecond))
			if p99(took) > allowed {
				return saw, fmt.Errorf("%s: at most %s is allowed", saw, allowed)
			}
			return saw, nil
		},
	}.Run(ctx, s)
}

// p99 is what 99 of 100 took at most; took is sorted and not empty.
func p99(took []time.Duration) time.Duration { return took[(len(took)*99+99)/100-1] }

// timed uploads documents from a number on for a while and returns how long each upload took.
func timed(ctx context.Context, c *stage.Cluster, extra *apiclient.Record, first int, long time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var wg sync.WaitGroup
	for client := range silentClients {
		wg.Go(func() {
			for n := client; ctx.Err() == nil; n += silentClients {
				d := apiclient.Text(first+n, stage.DocBytes)
				began := time.Now()
				task, err := c.Client.Upload(context.WithoutCancel(ctx), d)
				mu.Lock()
				took = append(took, time.Since(began))
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("upload beside the load: %w", err))
				} else {
					extra.Accepted[task.TaskID] = d
				}
				mu.Unlock()
				await.Pause(ctx, stage.StormPause)
			}
		})
	}
	wg.Wait()
	return took, failed
}
