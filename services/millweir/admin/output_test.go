package admin

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq/kafkaq/embedded"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/submit"
)

// samples are arguments with which every command does something; a new command needs a row.
var samples = map[string]string{
	"submit": "FILE", "apply": "ingest.text words", "documents list": "", "documents rollback": "x", "documents deletion": "x", "tasks list": "", "tasks get": "x", "tasks watch": "x", "tasks retry": "x", "tasks cancel": "x --yes",
	"tasks explain": "x", "search": "words", "tasks wait": "x", "tasks suspend": "x", "tasks resume": "x", "watch": "DIR --once --journal NEW",
	"documents get": "x", "documents file": "x", "documents segments": "x", "documents versions": "x", "documents delete": "x --yes", "groups": "", "errors": "", "top": "--once", "doctor": "",
	"bases list": "", "bases get": "x", "bases create": "x", "bases delete": "x --yes", "bases reindex": "x",
	"bulk run": "retry --filter x --yes", "bulk list": "", "bulk get": "x", "bulk pause": "x", "bulk resume": "x", "bulk stop": "x",
	"workers list": "", "workers drain": "x", "workers resume": "x",
	"checks run": "", "checks list": "", "checks get": "x",
	"views list": "", "views save": "a b", "views delete": "x",
	"config set": "server http://localhost:1", "config get": "", "config list": "", "config use": "default",
	"outbox list": "", "outbox requeue": "e1", "outbox stats": "",
	"dlq list": "", "dlq get": "l1", "dlq replay": "l1", "dlq drop": "l1 --yes",
	"mq topics": "", "mq partitions": "t", "mq groups": "t", "mq lag": "t g", "mq owners": "t g", "mq pending": "t g", "mq inflight": "t g",
	"mq recent": "t", "mq trim": "t --finished --yes", "mq reset": "t g --to end --yes", "mq delete": "t --yes", "mq status": "a",
	"migrate up": "", "migrate status": "", "fsck": "", "kafka init": "", "timeline renew": "--yes", "timeline mark": "--yes",
	"reindex": "", "export-pending": "NEW", "import-pending": "PENDING", "keys create": "--user anna", "keys list": "", "keys revoke": "KEY",
}

// anything is a gateway that has an answer to every question.
func anything(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/file"):
		w.Header().Set("Content-Disposition", "attachment")
		_, _ = io.WriteString(w, "{}")
	case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/internal/mq"):
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/events") && strings.HasPrefix(r.URL.Path, "/api"):
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 1\nevent: status\ndata: {\"taskId\":\"x\",\"status\":\"RUNNING\"}\n\n"+
			"id: 2\nevent: status\ndata: {\"taskId\":\"x\",\"status\":\"SUCCEEDED\"}\n\n")
	case strings.HasPrefix(r.URL.Path, "/internal/mq"):
		_, _ = io.WriteString(w, `{"items":[]}`)
	default:
		_, _ = io.WriteString(w, `{"taskId":"x","status":"SUCCEEDED","items":[],"hits":[],"nextCursor":null,"partitions":[],"each":[],"members":[],"counts":{},"text":"words","ready":true,"x-error-codes":{"A":{}}}`)
	}
}

// TestEveryCommandWritesWhatItIsAskedFor walks all commands but dev, as the help's last lines promise.
// Not parallel: it sets variables.
func TestEveryCommandWritesWhatItIsAskedFor(t *testing.T) {
	gateway := httptest.NewServer(http.HandlerFunc(anything))
	defer gateway.Close()
	broker, err := embedded.Start()
	require.NoError(t, err)
	defer broker.Stop()
	for name, value := range map[string]string{
		"MYSQL_DSN": "", "DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "REDIS_URL": "", "CHROMA_BASE_URL": "",
		"VECTOR_STORE": "embedded", "VECTOR_DIR": t.TempDir(), "UPLOAD_DIR": t.TempDir(), "EMBEDDING_BASE_URL": "", "INGEST_QUEUE": "kafka",
		"KAFKA_BOOTSTRAP_SERVERS": broker.Bootstrap(),
	} {
		t.Setenv(name, value)
	}
	file := filepath.Join(t.TempDir(), "a.txt")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	config := t.TempDir()
	do := func(args ...string) (int, string, string) {
		var o, e bytes.Buffer
		std := cli.IO{In: strings.NewReader(""), Out: &o, Err: &e, ConfigDir: config, Getenv: func(k string) string {
			return map[string]string{"MILLWEIR_SERVER": gateway.URL}[k]
		}}
		code := cli.Run(t.Context(), std, args, cli.Commands, submit.Commands, Commands)
		return code, o.String(), e.String()
	}
	code, _, errs := do("config", "set", "server", gateway.URL)
	require.Equal(t, cli.ExitOK, code, errs)
	code, out, errs := do("migrate", "up", "-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	require.Contains(t, out, `"appliedAt": "20`, "of one that it has just applied")
	require.NotContains(t, out, "null")
	pending := filepath.Join(t.TempDir(), "pending")
	code, _, errs = do("export-pending", pending)
	require.Equal(t, cli.ExitOK, code, errs)
	code, _, errs = do("kafka", "init")
	require.Equal(t, cli.ExitOK, code, errs)
	_, help, _ := do("help")
	listed := strings.Count(help, "\n  millweir ")
	require.Len(t, samples, listed-1, "a command has no row in samples, completion apart")
	for _, name := range slices.Sorted(maps.Keys(samples)) { // in one order: after `timeline renew` doctor complains of the upload folder
		sample := samples[name]
		require.Contains(t, help, "  millweir "+name, "no such command")
		for _, output := range []string{"table", "json", "jsonl"} {
			if name == "keys revoke" {
				_, made, _ := do("keys", "create", "--user", "anna", "-o", "json")
				var key shownKey
				require.NoError(t, json.Unmarshal([]byte(made), &key), made)
				sample = key.ID
			}
			fresh := filepath.Join(t.TempDir(), "pending")
			args := append(strings.Fields(name), strings.Fields(strings.NewReplacer("FILE", file, "NEW", fresh, "PENDING", pending, "DIR", filepath.Dir(file)).Replace(sample))...)
			code, out, errs := do(append(args, "-o", output)...)
			if code != cli.ExitOK {
				t.Errorf("%v -o %s: exit %d: %s", args, output, code, errs)
			}
			if output == "json" && !json.Valid([]byte(out)) {
				t.Errorf("%v -o json: %s", args, out)
			}
			for line := range strings.Lines(out) {
				if output == "jsonl" && !json.Valid([]byte(line)) {
					t.Errorf("%v -o jsonl: %s", args, line)
				}
			}
			if code, _, _ = do(append(args, "-o", "xml")...); code != cli.ExitUsage {
				t.Errorf("%v -o xml: exit %d", args, code)
			}
		}
	}
}

// Every list of the command line takes every limit: what is above the server's page is paged.
func TestEveryListTakesEveryLimit(t *testing.T) {
	t.Parallel()
	var lists []string
	for name, sample := range samples {
		var asked []string
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			limit := r.URL.Query().Get("limit")
			asked = append(asked, limit)
			n := map[string]int{"100": 100, "50": 50, "1": 1}[limit]
			if n == 0 {
				w.WriteHeader(http.StatusBadRequest) // a limit that the gateway refuses
				return
			}
			items := strings.TrimSuffix(strings.Repeat(`{},`, n), ",")
			_, _ = io.WriteString(w, `{"items":[`+items+`],"nextCursor":"c","hasMore":true}`)
		}))
		run := func(limit string) (int, string) {
			asked = nil
			var o, e bytes.Buffer
			args := append(strings.Fields(name), strings.Fields(sample)...)
			code := cli.Run(t.Context(), cli.IO{Out: &o, Err: &e, Getenv: func(string) string { return "" }},
				append(args, "--server", gateway.URL, "-o", "jsonl", "--limit", limit), cli.Commands)
			return code, o.String() + e.String()
		}
		if _, text := run("1"); !strings.Contains(text, "unknown flag: --") && !strings.Contains(text, "unknown command") {
			lists = append(lists, name)
			for limit, pages := range map[string][]string{"1": {"1"}, "100": {"100"}, "150": {"100", "50"}, "250": {"100", "100", "50"}} {
				code, out := run(limit)
				require.Equal(t, cli.ExitOK, code, "%s --limit %s: %s", name, limit, out)
				require.Equal(t, pages, asked, "%s --limit %s", name, limit)
				require.Equal(t, limit, strconv.Itoa(strings.Count(out, "\n")), "%s --limit %s", name, limit)
			}
			for _, limit := range []string{"0", "-1"} {
				code, out := run(limit)
				require.Equal(t, cli.ExitUsage, code, "%s --limit %s", name, limit)
				require.Contains(t, out, "at least 1", "%s --limit %s", name, limit)
			}
		}
		gateway.Close()
	}
	require.Len(t, lists, 12)
}
