package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/millweir/cli"
)

// anEvent is an event of the gateway's.
func anEvent(id, status string) map[string]any {
	return map[string]any{
		"id": id, "topic": "ingest-tasks", "taskId": "t1", "status": status, "cause": "REFUSED", "attemptCount": 3, "nextRetryAt": nil,
		"lastError": "message too large", "createdAt": "2026-01-02T03:04:05.000001Z", "sentAt": nil,
	}
}

func TestOutboxList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked []string
	b.mux.HandleFunc("GET /internal/outbox/events", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("cursor"))
		require.Equal(t, "REFUSED", r.URL.Query().Get("cause"))
		page := map[string]any{"items": []any{anEvent(fmt.Sprintf("e%d", len(asked)), "DEAD")}, "nextCursor": nil, "hasMore": false}
		if len(asked) < 3 {
			page["nextCursor"], page["hasMore"] = "c", true
		}
		reply(w, http.StatusOK, page)
	})
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "outbox", "list", "--cause", "REFUSED"))
	require.Equal(t, []string{"", "c", "c"}, asked)
	for _, want := range []string{"e1", "e2", "e3", "message too large"} {
		require.Contains(t, b.out.String(), want)
	}
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "outbox", "list", "x"))
}

func TestOutboxRequeue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var bodies []map[string]any
	b.mux.HandleFunc("POST /internal/outbox/events/{id}/requeue", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "sent" {
			reply(w, http.StatusConflict, map[string]any{"code": "EVENT_NOT_DEAD", "message": "The event is not DEAD.", "status": 409})
			return
		}
		reply(w, http.StatusOK, anEvent(r.PathValue("id"), "NEW"))
	})
	b.mux.HandleFunc("GET /internal/outbox", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"counts": map[string]int{"NEW": 1, "RETRYING": 2, "SENT": 3, "DEAD": 15_000}, "backlog": 3, "oldestAgeSeconds": 1.5})
	})
	b.mux.HandleFunc("POST /internal/outbox/requeue", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		bodies = append(bodies, body)
		reply(w, http.StatusOK, map[string]any{"requeued": 10_000, "more": true}) // they die again as fast as they are requeued
	})
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "outbox", "requeue", "e1", "e2"))
	require.Equal(t, 2, strings.Count(b.out.String(), "NEW"))
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "outbox", "requeue", "e1", "sent", "e2"))
	require.Contains(t, b.out.String(), "e1")
	require.NotContains(t, b.out.String(), "e2")
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "outbox", "requeue"))
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "outbox", "requeue", "e1", "--all"))
	require.Equal(t, cli.ExitConfirm, b.run(t.Context(), "outbox", "requeue", "--all"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "outbox", "requeue", "--all", "--cause", "REFUSED", "--yes"))
	require.Equal(t, []map[string]any{{"cause": "REFUSED", "limit": 10_000.0}, {"cause": "REFUSED", "limit": 10_000.0}}, bodies, "it ends")
	require.Contains(t, b.out.String(), "20000 requeued")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "outbox", "stats"))
	require.Contains(t, b.out.String(), "DEAD      15000")
}
