package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/admin"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/submit"
)

// bundle is one command line beside a gateway of the test's own.
type bundle struct {
	server   *httptest.Server
	mux      *http.ServeMux
	out, err bytes.Buffer
	in       string
	env      map[string]string
	terminal bool
	width    int
	cache    string
	config   string
}

// setup makes a bundle.
func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{mux: http.NewServeMux(), env: map[string]string{}}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Accept") == "text/event-stream" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		if _, pattern := b.mux.Handler(r); pattern == "" {
			reply(w, http.StatusNotFound, map[string]any{"code": "NOT_FOUND", "message": "there is nothing at this address"})
			return
		}
		b.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(b.server.Close)
	b.env["MILLWEIR_SERVER"] = b.server.URL
	return b
}

// run runs one command line and returns its exit code.
func (b *bundle) run(ctx context.Context, args ...string) int {
	b.out.Reset()
	b.err.Reset()
	std := cli.IO{In: strings.NewReader(b.in), Out: &b.out, Err: &b.err, Terminal: b.terminal, Width: b.width, CacheDir: b.cache, ConfigDir: b.config, Getenv: func(k string) string { return b.env[k] }}
	return cli.Run(ctx, std, args, cli.Commands, submit.Commands, admin.Commands)
}

// reply returns JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// aTask is a task of the gateway's.
func aTask(id, status string) map[string]any {
	return map[string]any{
		"taskId": id, "status": status, "stage": "embed", "progress": 40, "processedSegments": 4, "totalSegments": 10,
		"attemptCount": 1, "maxAttempts": 10, "lastError": "embed batch 1/2: refused", "errorMessage": nil,
		"createdAt": "2026-01-02T03:04:05.000001Z", "updatedAt": "2026-01-02T03:04:06.000001Z", "nextRetryAt": "2026-01-02T03:04:07Z",
	}
}

func TestExitCodesFollowTheGateway(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{
		401: cli.ExitAuth, 403: cli.ExitAuth, 404: cli.ExitNotFound, 409: cli.ExitBadInput, 413: cli.ExitBadInput, 415: cli.ExitBadInput,
		422: cli.ExitBadInput, 429: cli.ExitRateLimited, 500: cli.ExitServer, 503: cli.ExitServer,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
				reply(w, status, map[string]any{"code": "SOME_CODE", "message": "said so", "remedy": "Do this.", "requestId": "r1"})
			})
			require.Equal(t, want, b.run(t.Context(), "tasks", "get", "x"))
			require.Contains(t, b.err.String(), "SOME_CODE: said so. Do this. (request r1)")
		})
	}
}

func TestUsageIsExit2(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, args := range [][]string{
		{"nonsense"}, {"tasks", "get"}, {"tasks", "get", "a", "b"}, {"tasks", "list", "--no-such-flag"}, {"submit"},
		{"search"}, {"tasks", "list", "-o", "xml"}, {"submit", "--title", "t", "a", "b"}, {"tasks", "retry"}, {"tasks", "list", "extra"},
	} {
		require.Equal(t, cli.ExitUsage, b.run(t.Context(), args...), "%v", args)
		require.NotEmpty(t, b.err.String(), "%v", args)
	}
	require.Equal(t, cli.ExitOK, b.run(t.Context()))
	require.Contains(t, b.out.String(), "millweir submit PATH…")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "search", "--help"))
}

func TestNoServerIsExit7(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.server.Close()
	require.Equal(t, cli.ExitServer, b.run(t.Context(), "tasks", "get", "x"))
	require.Contains(t, b.err.String(), "no answer")
}

func TestAnswerThatIsNotOursKeepsItsStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html>proxy \x1b[31m says no</html>")
	})
	require.Equal(t, cli.ExitServer, b.run(t.Context(), "tasks", "get", "x"))
	require.Contains(t, b.err.String(), "HTTP_502")
	require.NotContains(t, b.err.String(), "\x1b", "a stranger's text must not drive the terminal")
}

// What a proxy, a portal or another server returns is never taken for the gateway's response: neither for what was asked for, nor for
// "there is no such thing".
func TestWhatAStrangerReturnsIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		header [2]string
		body   string
		code   int
		says   []string
	}{
		"too large":     {413, [2]string{"Server", "nginx"}, "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body>x</body></html>", cli.ExitServer, []string{"HTTP_413: 413 Request Entity Too Large (not from a millweir gateway). The limit is that of a proxy"}},
		"gone":          {404, [2]string{"Server", "nginx"}, "default backend - 404", cli.ExitServer, []string{"HTTP_404: default backend - 404 (not from"}},
		"its own JSON":  {404, [2]string{"Content-Type", "application/json"}, `{"message":"no Route matched"}`, cli.ExitServer, []string{"no Route matched"}},
		"a portal":      {200, [2]string{"Content-Type", "text/html"}, "<!doctype html><title>Log in &amp; surf</title>", cli.ExitServer, []string{"HTTP_200", "Log in & surf"}},
		"a code":        {200, [2]string{"Content-Type", "text/plain"}, `{"code":"DOCUMENT_NOT_FOUND"}`, cli.ExitServer, []string{"HTTP_200"}},
		"to https":      {301, [2]string{"Location", "https://docs.example/mill/api/knowledge/tasks/x"}, "<html>moved</html>", cli.ExitServer, []string{"it leads to https://docs.example/mill/api", "Set the server to https://docs.example/mill (--server"}},
		"to a log-in":   {302, [2]string{"Location", "/oauth2/start?rd=secret"}, "", cli.ExitServer, []string{"/oauth2/start (not from a millweir gateway). See whether http://"}},
		"who are you":   {403, [2]string{"Server", "nginx"}, "<html>no</html>", cli.ExitAuth, []string{"HTTP_403", "403 Forbidden"}},
		"its own limit": {429, [2]string{"Server", "nginx"}, "slow down", cli.ExitRateLimited, []string{"slow down"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				w.Header().Set(c.header[0], c.header[1])
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			for _, args := range [][]string{{"tasks", "get", "x"}, {"documents", "delete", "x", "--yes"}, {"tasks", "watch", "x"}} {
				if args[1] == "watch" && c.code == cli.ExitRateLimited {
					continue // it asks again
				}
				require.Equal(t, c.code, b.run(t.Context(), args...), "%v: %s", args, b.err)
				if args[1] == "get" {
					for _, want := range c.says {
						require.Contains(t, b.err.String(), want)
					}
				}
				require.NotContains(t, b.err.String(), "secret", "%v", args)
			}
		})
	}
}

func TestKeyIsSentAsBearer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.env["MILLWEIR_API_KEY"] = "mw_live_x"
	b.mux.HandleFunc("GET /api/knowledge/tasks/x", func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer mw_live_x", r.Header.Get("Authorization"))
		reply(w, 200, aTask("x", "RUNNING"))
	})
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "get", "x"))
	require.Contains(t, b.out.String(), "40%, 4 of 10 segments")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "get", "x", "-o", "json"))
	var got wire.Task
	require.NoError(t, json.Unmarshal(b.out.Bytes(), &got))
	require.EqualValues(t, "RUNNING", got.Status)
}

func TestListFollowsCursors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("GET /api/knowledge/tasks", func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "DEAD", r.URL.Query().Get("status"))
		if r.URL.Query().Get("cursor") == "" {
			reply(w, 200, map[string]any{"items": []any{aTask("a", "DEAD")}, "nextCursor": "c1", "hasMore": true})
			return
		}
		reply(w, 200, map[string]any{"items": []any{aTask("b", "DEAD")}, "nextCursor": nil, "hasMore": false})
	})
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "list", "--status", "DEAD", "-o", "jsonl"))
	require.Len(t, strings.Split(strings.TrimSpace(b.out.String()), "\n"), 2)
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "list", "--status", "DEAD"))
	require.Contains(t, b.out.String(), "embed batch 1/2: refused")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "list", "--status", "DEAD", "--limit", "1"))
	require.NotContains(t, b.out.String(), "\nb ")
}

// events returns a stream of states and then cuts it.
func events(w http.ResponseWriter, id string, statuses ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i, s := range statuses {
		data, _ := json.Marshal(aTask(id, s))
		_, _ = fmt.Fprintf(w, ": heartbeat\n\nevent: status\nid: %d\ndata: %s\n\n", i+1, data)
	}
}

func TestWatchTakesABrokenStreamUpAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var calls atomic.Int32
	b.mux.HandleFunc("GET /api/knowledge/tasks/x/events", func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			events(w, "x", "QUEUED", "RUNNING")
			return
		}
		require.Equal(t, "2", r.Header.Get("Last-Event-ID"))
		events(w, "x", "SUCCEEDED")
	})
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "watch", "x"))
	require.Contains(t, b.out.String(), "QUEUED")
	require.Contains(t, b.out.String(), "SUCCEEDED")
}

func TestWatchOfAnEndedTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("GET /api/knowledge/tasks/x/events", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	b.mux.HandleFunc("GET /api/knowledge/tasks/x", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, aTask("x", "DEAD")) })
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "tasks", "watch", "x"))
	require.Contains(t, b.err.String(), "task x is DEAD: embed batch 1/2: refused")
}

func TestWatchGivesUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("GET /api/knowledge/tasks/x/events", func(w http.ResponseWriter, r *http.Request) {
		events(w, "x", "QUEUED")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	require.Equal(t, cli.ExitTimeout, b.run(t.Context(), "tasks", "watch", "x", "--timeout", "100ms"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, cli.ExitInterrupted, b.run(ctx, "tasks", "watch", "x"))
}

func TestCancelAsks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var cancelled atomic.Int32
	b.mux.HandleFunc("POST /api/knowledge/tasks/x/cancel", func(w http.ResponseWriter, _ *http.Request) {
		cancelled.Add(1)
		reply(w, 200, aTask("x", "CANCELLED"))
	})
	require.Equal(t, cli.ExitConfirm, b.run(t.Context(), "tasks", "cancel", "x"))
	b.terminal, b.in = true, "no\n"
	require.Equal(t, cli.ExitConfirm, b.run(t.Context(), "tasks", "cancel", "x"))
	require.Zero(t, cancelled.Load())
	b.in = "yes\n"
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "cancel", "x"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "cancel", "x", "--yes"))
	require.EqualValues(t, 2, cancelled.Load())
}

func TestRetryStopsAtTheFirstRefusal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("POST /api/knowledge/tasks/a/retry", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, aTask("a", "QUEUED")) })
	b.mux.HandleFunc("POST /api/knowledge/tasks/b/retry", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 409, map[string]any{"code": "TASK_NOT_REPLAYABLE", "message": "the task is RUNNING"})
	})
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "tasks", "retry", "a", "b"))
	require.Contains(t, b.out.String(), "a     QUEUED")
	require.Contains(t, b.err.String(), "retry b: TASK_NOT_REPLAYABLE")
}

func TestSearchAndExplain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("POST /api/knowledge/search", func(w http.ResponseWriter, r *http.Request) {
		var q map[string]any
		require.NoError(t, json.NewDecoder(r.Body).Decode(&q))
		require.Equal(t, "dead letter queue", q["query"])
		reply(w, 200, map[string]any{"partial": true, "reranked": false, "hits": []any{map[string]any{
			"title": "Guide\x07", "page": 3, "headingPath": []string{"A", "B"}, "text": "the dead\nletter queue", "score": 0.5,
		}, map[string]any{"title": "Other", "text": "ordered by", "score": 0.5, "rerankScore": 0.25}}})
	})
	b.mux.HandleFunc("GET /api/knowledge/tasks/x/explain", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]any{"text": "The task waits."})
	})
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "search", "dead", "letter", "queue"))
	require.Contains(t, b.out.String(), "1. 0.500  Guide\\x07, page 3, A > B\n   the dead letter queue")
	require.Contains(t, b.out.String(), "2. 0.250  Other")
	require.Contains(t, b.out.String(), "not reranked")
	require.Contains(t, b.out.String(), "there may be more")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "search", "dead letter queue", "-o", "jsonl"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "explain", "x"))
	require.Equal(t, "The task waits.\n", b.out.String())
}
