package cli_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/cli"
)

// A bulk operation is shown before it is done, and done only when that was said.
func TestBulkAsksFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var real atomic.Int32
	b.mux.HandleFunc("POST /api/knowledge/bulk", func(w http.ResponseWriter, r *http.Request) {
		var wish wire.BulkRequest
		require.NoError(t, json.NewDecoder(r.Body).Decode(&wish))
		require.Equal(t, "status:DEAD", wish.Filter)
		if wish.DryRun {
			reply(w, http.StatusOK, map[string]any{"matched": 7, "eligible": 5, "skipped": map[string]int{"TASK_SUSPENDED": 2}, "sample": []any{aTask("x\x1b", "DEAD")}})
			return
		}
		real.Add(1)
		reply(w, http.StatusAccepted, map[string]any{"operationId": "o1", "action": wish.Action, "status": "QUEUED"})
	})
	run := func(want int, args ...string) {
		t.Helper()
		require.Equal(t, want, b.run(t.Context(), append([]string{"bulk", "run", "cancel", "--filter", "status:DEAD"}, args...)...), b.err.String())
	}
	run(0, "--dry-run")
	require.Contains(t, b.out.String(), "eligible     5\nskipped      2 TASK_SUSPENDED\n")
	run(0, "--dry-run", "--yes")
	run(cli.ExitConfirm)
	require.Contains(t, b.err.String(), "cancel 5 task(s)? Say --yes")
	require.NotContains(t, b.err.String(), "\x1b")
	b.terminal, b.in = true, "n\n"
	run(cli.ExitConfirm)
	require.Zero(t, real.Load())
	b.in = "y\n"
	run(0)
	b.terminal = false
	run(0, "--yes")
	require.EqualValues(t, 2, real.Load())
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "bulk", "run", "cancel", "--yes"), "all tasks are never meant by saying nothing")
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "bulk", "run"))
}

// Waiting ends when all have ended; one that is DEAD is the command's failure.
func TestTasksWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for id, end := range map[string]string{"good": "SUCCEEDED", "bad": "DEAD", "gone": "CANCELLED"} {
		b.mux.HandleFunc("GET /api/knowledge/tasks/"+id+"/events", func(w http.ResponseWriter, _ *http.Request) { events(w, id, "RUNNING", end) })
	}
	b.mux.HandleFunc("GET /api/knowledge/tasks/slow/events", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	b.mux.HandleFunc("GET /api/knowledge/tasks", func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "kb:x", r.URL.Query().Get("filter"))
		reply(w, http.StatusOK, map[string]any{"items": []any{aTask("good", "QUEUED"), aTask("bad", "QUEUED")}})
	})
	must := b.must(t)
	require.Regexp(t, `good +SUCCEEDED`, must(0, "tasks", "wait", "good", "gone"))
	must(cli.ExitFailed, "tasks", "wait", "good", "bad")
	require.Contains(t, b.err.String(), "1 of 2 tasks are DEAD")
	must(cli.ExitFailed, "tasks", "wait", "--filter", "kb:x")
	must(cli.ExitNotFound, "tasks", "wait", "slow", "nosuch")
	must(cli.ExitTimeout, "tasks", "wait", "good", "slow", "--timeout", "200ms")
	for _, wrong := range [][]string{nil, {"good", "--filter", "kb:x"}, {"--timeout", "soon"}} {
		must(cli.ExitUsage, append([]string{"tasks", "wait"}, wrong...)...)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	require.Equal(t, cli.ExitInterrupted, b.run(ctx, "tasks", "wait", "slow"))
}

// Top shows operators everything and users their own; it survives a server that is away for a moment.
func TestTop(t *testing.T) {
	t.Parallel()
	b, _ := cannedGateway(t)
	said := b.must(t)(0, "top", "--once")
	for _, want := range []string{"DEAD 2 (+1/h)  RUNNING 1 (+0/h)", "4 entries, 1 retries", "oldest       " + uuid1 + " RETRYING waits since", "RUNNING", uuid1 + "  embed"} {
		require.Contains(t, said, want)
	}
	require.NotContains(t, said, "CANCELLED", "there is none, and was none")
	require.Contains(t, said, "3 events wait, the oldest for 2s")
	var o struct{ Stats, Oldest map[string]any }
	require.NoError(t, json.Unmarshal([]byte(b.must(t)(0, "top", "--once", "-o", "json")), &o))
	require.Equal(t, uuid1, o.Oldest["taskId"])
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "top", "-o", "json"))

	b = setup(t)
	b.mux.HandleFunc("/internal/", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusForbidden, map[string]any{"code": "FORBIDDEN", "message": "no"})
	})
	b.mux.HandleFunc("/internal/outbox", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		http.Error(w, "default backend - 404", http.StatusNotFound) // a proxy that leads users' addresses alone
	})
	ctx, interrupt := context.WithCancel(t.Context())
	looks := 0
	b.mux.HandleFunc("GET /api/knowledge/tasks", func(w http.ResponseWriter, r *http.Request) {
		if looks++; looks == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if looks == 4 {
			interrupt()
		}
		reply(w, http.StatusOK, map[string]any{"items": []any{aTask("mine", r.URL.Query().Get("status"))}})
	})
	require.Equal(t, cli.ExitInterrupted, b.run(ctx, "top"))
	require.Contains(t, b.err.String(), "HTTP_502")
	require.Contains(t, b.out.String(), "mine")
	require.NotContains(t, b.out.String(), "stream")
}

// What has no error codes is another server; a code that is unknown is not found.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	b, _ := cannedGateway(t)
	require.Contains(t, b.must(t)(0, "errors"), "ENCRYPTED  422     It has a password.  Remove it.")
	b.must(t)(cli.ExitNotFound, "errors", "NO_SUCH")
	b.must(t)(cli.ExitUsage, "errors", "A", "B")
	require.Equal(t, "A_CODE\nENCRYPTED\n", b.must(t)(0, "errors", "-o", "name"))
	b = gatewayThat(t, func(w http.ResponseWriter, _ string) { reply(w, http.StatusOK, map[string]any{"info": 1}) })
	b.must(t)(cli.ExitServer, "errors")
	require.Contains(t, b.err.String(), "no millweir gateway")
}

// What deletes asks.
func TestDeletionsAsk(t *testing.T) {
	t.Parallel()
	b, seen := cannedGateway(t)
	for _, verb := range []string{"bases delete notes", "documents delete d1"} {
		require.Equal(t, cli.ExitConfirm, b.run(t.Context(), strings.Fields(verb)...), verb)
	}
	require.Empty(t, seen.String())
}
