package installation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	awayUploads = 200
	awayEvery   = 100 * time.Millisecond
	awayRest    = 5 * time.Second // until the rehydrator has noticed
)

// RedisAway uploads while Redis is away: the mirror copies each task, and a rehydrator runs it out of its copy.
func RedisAway(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "redis-away", RabbitMQ: true}, "ingest-api", "stream-mirror")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p, err := w.Rehydrate([]string{"--mode", "auto"})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.AwaitReady(ctx, figure.StartLimit), w.Redis.Kill(ctx)); err != nil {
		return nil, err
	}
	await.Pause(ctx, awayRest)
	load := apiclient.Load{Target: client, Clients: 1, Count: awayUploads, Bytes: smallText, Every: awayEvery}.Run(ctx)
	if len(load.Accepted) != awayUploads {
		return nil, fmt.Errorf("%d of %d uploads were accepted", len(load.Accepted), awayUploads)
	}
	if err := figure.Counted(ctx, w, figure.SettleLimit, func(c map[taskstate.Status]int) bool { return c[taskstate.StatusSucceeded] == awayUploads }); err != nil {
		return nil, err
	}
	logs, err := tables.Logs(ctx, w.DB.Reader())
	if err != nil {
		return nil, err
	}
	var waits []time.Duration
	for _, log := range logs {
		if len(log) > 1 && log[1].Reason == taskstate.ReasonClaimed {
			waits = append(waits, log[1].CreatedAt.Sub(log[0].CreatedAt))
		}
	}
	note := fmt.Sprintf("%d uploads, 10 a second, one rehydrator in mode auto", len(waits))
	return []figure.Figure{
		{Name: "accept → running without Redis, p50", Measured: figure.Ms(figure.Percentile(waits, 50)), Unit: "ms", Asked: 400, Relation: "≤", Note: note},
		{Name: "  p99", Measured: figure.Ms(figure.Percentile(waits, 99)), Unit: "ms"},
	}, nil
}
