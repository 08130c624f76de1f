package installation

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	others, err := taskiq(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("taskiq: %w", err)
	}
	p50 := figure.Ms(figure.Percentile(times, 50))
	note := fmt.Sprintf("%d, MariaDB and Redis, one worker; a POST to a service on loopback is in it", applies)
	return []figure.Figure{
		{Name: "no-op workflow asked for, with its result, 100/s, p50", Measured: p50, Unit: "ms", Asked: 15, Relation: "≤", Note: note},
		{Name: "  p99", Measured: figure.Ms(figure.Percentile(times, 99)), Unit: "ms"},
		{Name: "  p50 ÷ taskiq's, as it comes", Measured: p50 / others["0.2"], Unit: "×", Asked: 0.7, Relation: "≤", Note: fmt.Sprintf("taskiq: %.1f ms; it looks for a result every 200 ms, and its task does nothing at all", others["0.2"])},
		{Name: "  p50 ÷ taskiq's that looks every ms", Measured: p50 / others["0.001"], Unit: "×", Note: fmt.Sprintf("taskiq: %.1f ms", others["0.001"])},
	}, nil
}

//go:embed taskiq_beside.py
var taskiqScript string

// taskiq returns the median in ms of the same with taskiq on the world's Redis, by how many seconds it rests between two looks at a result.
func taskiq(ctx context.Context, w *world.World) (map[string]float64, error) {
	out := map[string]float64{}
	err := figure.WithPython(ctx, []string{"taskiq==0.13.0", "taskiq-redis==1.2.4"}, func(dir string, command func(args ...string) *exec.Cmd) error {
		path := filepath.Join(dir, "taskiq_beside.py")
		if err := os.WriteFile(path, []byte(taskiqScript), 0o600); err != nil {
			return err
		}
		run := command(path, strconv.Itoa(applies/4))
		run.Env = append(run.Env, "TASKIQ_URL="+w.Redis.URL(""))
		said, err := run.Output()
		if err != nil {
			return err
		}
		var times map[string][]float64
		if err := json.Unmarshal(said, &times); err != nil {
			return err
		}
		for pause, all := range times {
			slices.Sort(all)
			out[pause] = all[len(all)/2]
		}
		return nil
	})
	return out, err
}
