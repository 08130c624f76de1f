package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

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
