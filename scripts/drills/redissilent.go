package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/scripts/lab"
)

const (
	// silentRest is the first time-out (2 s) with room for what was under way when Redis fell silent.
	silentRest = 4 * time.Second
	// silentMost is the longest that 99 of 100 uploads may take while Redis says nothing.
	silentMost = 200 * time.Millisecond
	// silentClients upload beside the load of the storm, each as fast as it is answered but for a rest.
	silentClients = 2
	// firstSilent is the number of their first document: far from those of the load.
	firstSilent = 2_000_000
)

// redisSilent pauses Redis under load: its connections stay open and say nothing. Uploads wait for it once and then leave it alone.
func redisSilent(ctx context.Context, s *stage) (string, error) {
	var took []time.Duration
	extra := &lab.Record{Accepted: map[string]lab.Doc{}, Other: map[int]int{}}
	return storm{
		opts: lab.Options{Env: retrying},
		faults: func(ctx context.Context, c *cluster) error {
			lab.Pause(ctx, s.load/4)
			if err := c.Redis.Pause(); err != nil {
				return err
			}
			lab.Pause(ctx, silentRest)
			var err error
			took, err = timed(ctx, c, extra, max(s.load/2-silentRest, 2*silentRest))
			err = errors.Join(err, c.Redis.Continue())
			lab.Pause(ctx, s.load/4)
			return errors.Join(err, c.allRun())
		},
		forgive: func(load *lab.Record) { load.Add(extra) },
		judge: func(_ context.Context, _ *cluster, load *lab.Record) (string, error) {
			if len(took) == 0 || load.Busy+load.Unknown > 0 {
				return "", fmt.Errorf("uploads depend on Redis: %d measured, %d answered 503, %d broke off", len(took), load.Busy, load.Unknown)
			}
			slices.Sort(took)
			p99 := took[(len(took)*99+99)/100-1]
			saw := fmt.Sprintf("%d uploads beside a silent Redis: p50 %s, p99 %s", len(took),
				took[len(took)/2].Round(time.Millisecond), p99.Round(time.Millisecond))
			if p99 > silentMost {
				return saw, fmt.Errorf("p99 of uploads beside a silent Redis is %s, at most %s is allowed", p99, silentMost)
			}
			return saw, nil
		},
	}.run(ctx, s)
}

// timed uploads for a while and returns how long each upload took.
func timed(ctx context.Context, c *cluster, extra *lab.Record, long time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var wg sync.WaitGroup
	for client := range silentClients {
		wg.Go(func() {
			for n := client; ctx.Err() == nil; n += silentClients {
				d := lab.Text(firstSilent+n, docBytes)
				began := time.Now()
				task, err := c.client.Upload(context.WithoutCancel(ctx), d)
				mu.Lock()
				took = append(took, time.Since(began))
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("upload beside a silent Redis: %w", err))
				} else {
					extra.Accepted[task.TaskID] = d
				}
				mu.Unlock()
				lab.Pause(ctx, stormPause)
			}
		})
	}
	wg.Wait()
	return took, failed
}
