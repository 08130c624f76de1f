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

// aLetter is a dead letter of the gateway's.
func aLetter(id string, reason any) map[string]any {
	return map[string]any{
		"id": id, "source": "redis", "taskId": "t1", "fence": 3, "attemptCount": 2, "lastError": "embed: refused", "failedAt": "2026-01-02T03:04:05.000001Z",
		"sourceStream": "ingest:tasks", "sourceGroup": "g", "sourceRecordId": "1-1", "raw": nil, "task": map[string]any{"status": "DEAD", "fence": 3},
		"replayable": reason == nil, "reason": reason, "why": reason,
	}
}

func TestDLQListAndGet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked []string
	b.mux.HandleFunc("GET /internal/dlq", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		page := map[string]any{"items": []any{aLetter(fmt.Sprintf("%d-0", len(asked)), nil)}, "nextCursor": nil}
		switch len(asked) {
		case 1:
			page["nextCursor"] = "c"
		case 2:
			page["items"], page["nextCursor"] = []any{}, "d" // a rare filter: an empty page is not the end
		}
		reply(w, http.StatusOK, page)
	})
	b.mux.HandleFunc("GET /internal/dlq/letters/{id}", func(w http.ResponseWriter, r *http.Request) {
		l := aLetter(r.PathValue("id"), nil)
		if r.PathValue("id") == "9-9" {
			l = aLetter("9-9", "UNREADABLE")
			l["taskId"], l["task"], l["fence"] = nil, nil, nil
			l["raw"] = map[string]any{"what": map[string]any{"value": "/w==", "encoding": "base64", "bytes": 9000, "clipped": true}}
		}
		reply(w, http.StatusOK, l)
	})
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "list", "--error", "refused", "--failed-after", "2026-01-01T00:00:00Z"))
	require.Equal(t, []string{
		"error=refused&failedAfter=2026-01-01T00%3A00%3A00Z&limit=50", "cursor=c&error=refused&failedAfter=2026-01-01T00%3A00%3A00Z&limit=49",
		"cursor=d&error=refused&failedAfter=2026-01-01T00%3A00%3A00Z&limit=49",
	}, asked)
	require.Contains(t, b.out.String(), "1-0")
	require.Contains(t, b.out.String(), "3-0")
	require.Contains(t, b.out.String(), "embed: refused")
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "dlq", "list", "x"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "get", "1-0"))
	require.Contains(t, b.out.String(), "millweir dlq replay 1-0")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "get", "9-9"))
	require.Contains(t, b.out.String(), "base64:/w== (9000 bytes)")
	require.NotContains(t, b.out.String(), "dlq replay")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "get", "9-9", "-o", "json"))
	require.Contains(t, b.out.String(), `"encoding": "base64"`)
}

func TestDLQReplayAndDrop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var bodies []map[string]any
	many := func(done string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
			bodies = append(bodies, body)
			answer := map[string]any{done: 7, "skipped": map[string]int{"SUPERSEDED": 1}, "failed": 0, "error": nil, "nextCursor": nil, "dryRun": body["dryRun"]}
			if body["cursor"] == nil {
				answer["nextCursor"] = "c"
			}
			if body["error"] == "broken" {
				answer["failed"], answer["error"] = 3, "UNAVAILABLE"
			}
			reply(w, http.StatusOK, answer)
		}
	}
	b.mux.HandleFunc("POST /internal/dlq/replay", many("replayed"))
	b.mux.HandleFunc("POST /internal/dlq/drop", many("dropped"))
	b.mux.HandleFunc("POST /internal/dlq/letters/{id}/replay", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "stale" {
			reply(w, http.StatusConflict, map[string]any{"code": "TASK_NOT_REPLAYABLE", "message": "the task is RUNNING", "status": 409})
			return
		}
		reply(w, http.StatusOK, aTask("t-"+r.PathValue("id"), "QUEUED"))
	})
	var deleted []string
	b.mux.HandleFunc("DELETE /internal/dlq/letters/{id}", func(w http.ResponseWriter, r *http.Request) {
		deleted = append(deleted, r.PathValue("id")+"?"+r.URL.RawQuery)
		w.WriteHeader(http.StatusNoContent)
	})

	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "replay", "1-0", "2-0"))
	require.Equal(t, 2, strings.Count(b.out.String(), "QUEUED"))
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "dlq", "replay", "1-0", "stale", "2-0"))
	require.Contains(t, b.out.String(), "t-1-0")
	require.Contains(t, b.err.String(), "the task is RUNNING")
	for _, wrong := range [][]string{{}, {"1-0", "--all"}, {"1-0", "--error", "x"}, {"1-0", "--dry-run"}} {
		require.Equal(t, cli.ExitUsage, b.run(t.Context(), append([]string{"dlq", "replay"}, wrong...)...), wrong)
	}
	require.Equal(t, cli.ExitConfirm, b.run(t.Context(), "dlq", "replay", "--all"))
	require.Empty(t, bodies)
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "replay", "--all", "--dry-run"), "which needs no yes")
	require.Contains(t, b.out.String(), "14 would be replayed, 2 skipped (2 SUPERSEDED)")
	bodies = nil
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "replay", "--all", "--error", "x", "--per-second", "5", "--yes"))
	require.Equal(t, map[string]any{"all": true, "dryRun": false, "error": "x", "perSecond": 5.0}, bodies[0])
	require.Equal(t, "c", bodies[1]["cursor"])
	require.Contains(t, b.out.String(), "14 replayed")
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "dlq", "replay", "--all", "--error", "broken", "--yes"))
	require.Contains(t, b.err.String(), "UNAVAILABLE; run the command again")
	require.Contains(t, b.out.String(), "7 replayed, 1 skipped (1 SUPERSEDED), 3 failed")

	require.Equal(t, cli.ExitConfirm, b.run(t.Context(), "dlq", "drop", "1-0"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "drop", "1-0", "2-0", "--yes"))
	require.Contains(t, b.out.String(), "2-0")
	require.Equal(t, cli.ExitConfirm, b.run(t.Context(), "dlq", "drop", "--all"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "drop", "--all", "--yes", "-o", "json"))
	require.Contains(t, b.out.String(), `"dropped": 14`)

	// The reason goes into the audit log: of each letter that is named, and with every request of a bulk drop.
	deleted, bodies = nil, nil
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "drop", "1-0", "2-0", "--reason", "a & b", "--yes"))
	require.Equal(t, []string{"1-0?reason=a+%26+b", "2-0?reason=a+%26+b"}, deleted)
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "drop", "--all", "--error", "x", "--reason", "a & b", "--yes"))
	require.Len(t, bodies, 2)
	for _, body := range bodies {
		require.Equal(t, "a & b", body["reason"])
	}
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "dlq", "replay", "1-0", "--reason", "x"), "only a drop has one")
}
