package admin

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/millweir/cli"
)

// samples are arguments with which every command does something; a new command needs a row.
var samples = map[string]string{
	"submit": "FILE", "tasks list": "", "tasks get": "x", "tasks watch": "x", "tasks retry": "x", "tasks cancel": "x --yes",
	"tasks explain": "x", "search": "words", "messages": "a b",
	"outbox list": "", "outbox requeue": "e1", "outbox stats": "",
	"dlq list": "", "dlq get": "l1", "dlq replay": "l1", "dlq drop": "l1 --yes",
	"mq topics": "", "mq partitions": "t", "mq groups": "t", "mq lag": "t g", "mq owners": "t g", "mq pending": "t g", "mq inflight": "t g",
	"mq recent": "t", "mq trim": "t --finished --yes", "mq reset": "t g --to end --yes", "mq delete": "t --yes", "mq status": "a",
	"migrate up": "", "migrate status": "", "fsck": "", "kafka init": "", "timeline renew": "--yes",
	"keys create": "--user anna", "keys list": "", "keys revoke": "KEY",
}

// Every list of the command line takes every limit: what is above the server's page is paged.
func TestEveryListTakesEveryLimit(t *testing.T) {
	t.Parallel()
	for name, sample := range samples {
		var asked []string
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
				append(args, "--server", gateway.URL, "-o", "jsonl", "--limit", limit), cli.Commands())
			return code, o.String() + e.String()
		}
		if _, text := run("1"); !strings.Contains(text, "flag provided but not defined: -limit") && !strings.Contains(text, "unknown command") {
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
}
