package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/millweir/cli"
)

// A repair says why, or is a dry run; it is confirmed, and nothing is asked for without that.
func TestChecksRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var bodies []string
	b.mux.HandleFunc("POST /internal/fsck", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		bodies = append(bodies, string(body))
		_, _ = io.WriteString(w, check1(""))
	})
	for _, wrong := range [][]string{{"x"}, {"--dry-run"}, {"--reason", "x"}, {"--repair"}, {"--repair", "--dry-run", "--reason", "x"}} {
		require.Equal(t, cli.ExitUsage, b.run(t.Context(), append([]string{"checks", "run", "--yes"}, wrong...)...), wrong)
	}
	require.Equal(t, cli.ExitConfirm, b.run(t.Context(), "checks", "run", "--repair", "--reason", "x"))
	require.Empty(t, bodies)
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "checks", "run"))
	require.Contains(t, b.out.String(), "millweir checks get c1")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "checks", "run", "--deep", "--history", "--repair", "--dry-run"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "checks", "run", "--repair", "--reason", "x", "--yes"))
	require.Len(t, bodies, 3)
	require.JSONEq(t, `{}`, bodies[0])
	require.JSONEq(t, `{"deep":true,"history":true,"repair":true,"dryRun":true}`, bodies[1])
	require.JSONEq(t, `{"repair":true,"dryRun":false,"reason":"x"}`, bodies[2])
}

// The exit code says what fsck's says: 1 while something is wrong, and for a check that came to no end.
func TestChecksGetSaysByItsExitCodeWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	change := map[string]any{}
	b.mux.HandleFunc("GET /internal/fsck/c1", func(w http.ResponseWriter, _ *http.Request) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(canned["GET /internal/fsck/c1"]), &r))
		for name, value := range change {
			r[name] = value
		}
		reply(w, http.StatusOK, r)
	})
	for _, output := range []string{"table", "wide"} {
		require.Equal(t, cli.ExitFailed, b.run(t.Context(), "checks", "get", "c1", "-o", output))
		require.Contains(t, b.err.String(), "2 violations")
		for _, want := range []string{
			"Nothing accepted is lost.", "not: there is no Kafka", `I12 d1: the file \x1b[31m is missing`, "  RUNNING", "WOULD MEND", "delete_vectors b1/v1",
			"not mended: d1: its file is gone", "not mended: 1 more", "Evidence was left out",
		} {
			require.Contains(t, b.out.String(), want, output)
		}
	}
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "checks", "get", "c1", "-o", "json"))
	require.True(t, json.Valid(b.out.Bytes()), b.out.String())
	none := map[string]any{"violations": nil, "rules": []any{}, "repairReport": nil}
	for _, c := range []struct {
		change map[string]any
		code   int
		want   string
	}{
		{map[string]any{"left": 0, "dryRun": false}, cli.ExitOK, "left         0"},
		{map[string]any{"left": 1, "dryRun": false}, cli.ExitFailed, "left         1"},
		{map[string]any{"violations": 0}, cli.ExitOK, "violations   0"},
		{map[string]any{"status": "RUNNING", "stepsDone": 3}, cli.ExitOK, "3 of 7"},
		{map[string]any{"status": "DEAD", "errorMessage": "the disk is full"}, cli.ExitFailed, "the disk is full"},
		{map[string]any{"status": "CANCELLED"}, cli.ExitFailed, "CANCELLED"},
	} {
		change = map[string]any{}
		if c.change["status"] != nil {
			for name, value := range none {
				change[name] = value
			}
		}
		for name, value := range c.change {
			change[name] = value
		}
		require.Equal(t, c.code, b.run(t.Context(), "checks", "get", "c1"), c.change)
		require.Contains(t, b.out.String(), c.want)
	}
}

// With --wait the report follows the end of the check, with its exit code; a time limit ends the waiting alone.
func TestChecksRunWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("POST /internal/fsck", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, check1("")) })
	var ends, ended atomic.Bool
	b.mux.HandleFunc("GET /api/knowledge/tasks/c1/events", func(w http.ResponseWriter, r *http.Request) {
		if !ends.Load() {
			events(w, "c1", "RUNNING")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		ended.Store(true)
		events(w, "c1", "RUNNING", "SUCCEEDED")
	})
	b.mux.HandleFunc("GET /internal/fsck/c1", func(w http.ResponseWriter, _ *http.Request) {
		require.True(t, ended.Load(), "the report is asked for after the end")
		_, _ = io.WriteString(w, canned["GET /internal/fsck/c1"])
	})
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "checks", "run", "--timeout", "1s"))
	require.Equal(t, cli.ExitTimeout, b.run(t.Context(), "checks", "run", "--wait", "--timeout", "100ms"))
	ends.Store(true)
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "checks", "run", "--wait"))
	require.Contains(t, b.out.String(), "Nothing accepted is lost.")
	require.Contains(t, b.err.String(), "2 violations")
}
