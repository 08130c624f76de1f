package installation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	defer service.Close()
	dir, err := os.MkdirTemp("", "workflows")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	file := filepath.Join(dir, "workflows.yaml")
	if err := os.WriteFile(file, []byte("workflows: [{id: none, kind: http, url: '"+service.URL+"'}]\n"), 0o600); err != nil {
		return nil, err
	}
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "workflows", Env: []string{"WORKFLOWS_FILE=" + file}}, "ingest-api", "stream-worker")
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
			status, err := client.Apply(ctx, "none", fmt.Sprint(i))
			took := time.Since(began)
			if err == nil && status != taskstate.StatusSucceeded {
				err = fmt.Errorf("workflow %d is %s", i, status)
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
