package installation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	applies    = 2000
	applyWarm  = 100
	applyEvery = 10 * time.Millisecond // 100 a second, whatever became of those before
)

// Workflows asks 100 times a second for a workflow that a service ends at once, and waits for each result.
func Workflows(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	workflow, err := world.ServeWorkflow("none")
	if err != nil {
		return nil, err
	}
	defer workflow.Close()
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "workflows", Env: []string{workflow.Env}}, "ingest-api", "stream-worker")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	var mu sync.Mutex
	var times []time.Duration
	var errs []error
	var all sync.WaitGroup
	for i := range applyWarm + applies {
		all.Go(func() {
			began := time.Now()
			run, err := client.Apply(ctx, workflow.ID, fmt.Sprint(i), true)
			took := time.Since(began)
			if err == nil && run.Status != taskstate.StatusSucceeded {
				err = fmt.Errorf("workflow %d is %s", i, run.Status)
			}
			mu.Lock()
			defer mu.Unlock()
			if errs = append(errs, err); i >= applyWarm {
				times = append(times, took)
			}
		})
		await.Pause(ctx, applyEvery)
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d, MariaDB and Redis, one worker; a POST to a service on loopback is in it", applies)
	return []figure.Figure{
		{Name: "no-op workflow asked for, with its result, 100/s, p50", Measured: figure.Ms(figure.Percentile(times, 50)), Unit: "ms", Asked: 15, Relation: "≤", Note: note},
		{Name: "  p99", Measured: figure.Ms(figure.Percentile(times, 99)), Unit: "ms"},
	}, nil
}
