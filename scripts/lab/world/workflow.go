package world

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Workflow is a workflow that a service of this process ends at once. It is safe for concurrent use.
type Workflow struct {
	ID  string
	Env string // setting of the gateway and the workers

	service *httptest.Server
	dir     string

	mu    sync.Mutex
	calls map[string][]time.Time
}

// ServeWorkflow starts the service of a workflow. Close it.
func ServeWorkflow(id string) (*Workflow, error) {
	dir, err := os.MkdirTemp("", "workflows")
	if err != nil {
		return nil, err
	}
	w := &Workflow{ID: id, dir: dir, calls: map[string][]time.Time{}}
	w.service = httptest.NewServer(http.HandlerFunc(w.serve))
	file := filepath.Join(dir, "workflows.yaml")
	w.Env = "WORKFLOWS_FILE=" + file
	if err := os.WriteFile(file, fmt.Appendf(nil, "workflows: [{id: %s, kind: http, url: '%s'}]\n", id, w.service.URL), 0o600); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close stops the service.
func (w *Workflow) Close() {
	w.service.Close()
	_ = os.RemoveAll(w.dir) // a temporary folder
}

func (w *Workflow) serve(out http.ResponseWriter, r *http.Request) {
	began := time.Now()
	_, _ = io.Copy(io.Discard, r.Body)
	task := r.Header.Get("Idempotency-Key")
	w.mu.Lock()
	w.calls[task] = append(w.calls[task], began)
	w.mu.Unlock()
	_, _ = io.WriteString(out, `{"ok":true}`)
}

// Calls are the times at which the service was called, by task.
func (w *Workflow) Calls() map[string][]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := maps.Clone(w.calls)
	for task, times := range out {
		out[task] = slices.Clone(times)
	}
	return out
}
