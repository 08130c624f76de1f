package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

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
