package submit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/submit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is one command line beside a gateway of the test's own.
type bundle struct {
	server    *httptest.Server
	mux       *http.ServeMux
	out, err  bytes.Buffer
	in, cache string
	env       map[string]string
	terminal  bool
	width     int
}

// setup makes a bundle.
func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{mux: http.NewServeMux()}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Accept") == "text/event-stream" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		b.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(b.server.Close)
	b.env = map[string]string{"MILLWEIR_SERVER": b.server.URL}
	return b
}

// run runs one command line and returns its exit code.
func (b *bundle) run(ctx context.Context, args ...string) int {
	b.out.Reset()
	b.err.Reset()
	std := cli.IO{In: strings.NewReader(b.in), Out: &b.out, Err: &b.err, Terminal: b.terminal, Width: b.width, CacheDir: b.cache, Getenv: func(k string) string { return b.env[k] }}
	return cli.Run(ctx, std, args, submit.Commands)
}

// reply returns JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// aTask is a task of the gateway's.
func aTask(id, status string) map[string]any { return map[string]any{"taskId": id, "status": status} }

// events returns a stream of states and then cuts it.
func events(w http.ResponseWriter, id string, statuses ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i, s := range statuses {
		data, _ := json.Marshal(aTask(id, s))
		_, _ = fmt.Fprintf(w, "event: status\nid: %d\ndata: %s\n\n", i+1, data)
	}
}
