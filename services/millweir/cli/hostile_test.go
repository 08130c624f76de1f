package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/submit"
)

// verbs are command lines that each ask the gateway something; canned has what it says.
var verbs = []string{
	"submit testdata/a.txt", "documents list", "tasks list", "tasks get " + uuid1, "tasks retry " + uuid1, "tasks cancel " + uuid1 + " --yes",
	"tasks explain " + uuid1, "search letter", "outbox list", "outbox requeue e1", "outbox requeue --all --yes", "outbox stats",
	"dlq list", "dlq get 1-0", "dlq replay 1-0", "dlq replay --all --yes", "dlq drop --all --yes", "dlq list --topic orders",
	"dlq get 1-0 --topic orders", "dlq replay 1-0 --topic orders", "mq topics", "mq partitions orders", "mq groups orders",
	"mq lag orders g", "mq owners orders g", "mq pending orders g", "mq inflight orders g", "mq recent orders", "mq trim orders --finished --yes",
	"mq reset orders g --to end --yes", "mq status a b", "groups", "errors", "bulk run retry --filter x --yes", "bulk list", "bulk get o1",
	"views list", "views save a b", "bases list", "bases get notes", "bases create notes", "documents get d1", "documents segments d1", "tasks suspend " + uuid1,
	"tasks resume " + uuid1, "top --once", "checks run", "checks list", "checks get c1",
}

// gatewayThat answers every request with what say makes of the canned text.
func gatewayThat(t *testing.T, say func(w http.ResponseWriter, text string)) *bundle {
	t.Helper()
	b := setup(t)
	b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		say(w, canned[r.Method+" "+r.URL.Path])
	})
	return b
}

// What users and other programs wrote does not drive the terminal of who reads it, whatever field it stands in.
func TestForeignTextsAreShownWithoutControlCharacters(t *testing.T) {
	t.Parallel()
	text := regexp.MustCompile(`"(name|status|stage|layout|title|text|lastError|errorMessage|error|id|taskId|cause|topic|source|value|h|owner|epoch|` +
		`consumer|uuid|state|type|message|firstId|lastDelivered|frontier|group|why|reason|encoding|what|about|problem|history|notJudged|sentence|rule|userId)":"[^"]*"`)
	b := gatewayThat(t, func(w http.ResponseWriter, answer string) {
		_, _ = io.WriteString(w, text.ReplaceAllString(answer, `"$1":"evil\u001b[2J\u0007\r\nX\u009b31m\u0000"`))
	})
	for _, terminal := range []bool{false, true} {
		b.terminal = terminal
		b.env["NO_COLOR"] = "1"
		for _, verb := range verbs {
			b.run(t.Context(), strings.Fields(verb)...)
			said := b.out.String()
			if !terminal || !strings.HasPrefix(verb, "submit") { // whose bars are redrawn
				said += b.err.String()
			}
			for line := range strings.Lines(said) {
				line = strings.TrimSuffix(line, "\n")
				require.Equal(t, -1, strings.IndexFunc(line, unicode.IsControl), "%s prints %q", verb, line)
				require.NotRegexp(t, "^X", line, "%s lets a foreign text begin a line", verb)
			}
		}
	}
	b.run(t.Context(), "tasks", "list")
	require.Contains(t, b.out.String(), `evil\x1b[2J`)
}

// An answer that is cut off, of another shape, empty or a stranger's is an error of the server, never a panic and never a success
// with half of the truth.
func TestBrokenAnswersAreTheServersFault(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]func(w http.ResponseWriter, text string){
		"cut off": func(w http.ResponseWriter, text string) { _, _ = io.WriteString(w, text[:len(text)/2]) },
		"a page":  func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, "<html>please log in</html>") },
		"a text":  func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, `"fine"`) },
		"a list":  func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, `[{}]`) },
		"nothing": func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusOK) },
		"wrong types": func(w http.ResponseWriter, _ string) {
			_, _ = io.WriteString(w, `{"items":7,"taskId":[],"id":{},"text":1,"hits":"x","each":1,"partitions":"x","entries":"y","name":{},
				"operationId":7,"checkId":7,"viewId":7,"knowledgeBaseId":7,"documentId":7,"base":7,"index":"x","matched":"x","x-error-codes":7,"counts":7,
				"pendingDropped":"z","replayed":"a","dropped":"a","requeued":"a"}`)
		},
		"gone": func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewayThat(t, say)
			for _, verb := range verbs {
				for _, output := range []string{"table", "json"} {
					code := b.run(t.Context(), append(strings.Fields(verb), "-o", output)...)
					require.Equal(t, cli.ExitServer, code, "%s: %s%s", verb, b.out.String(), b.err.String())
					require.NotContains(t, b.out.String(), "fine", verb)
				}
			}
		})
	}
	b := gatewayThat(t, func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, `{"items":null,"nextCursor":null}`) })
	for _, verb := range []string{"documents list", "tasks list", "outbox list", "dlq list", "mq topics", "mq recent orders"} {
		require.Zero(t, b.run(t.Context(), append(strings.Fields(verb), "-o", "json")...), verb)
		require.Equal(t, "[]\n", b.out.String(), "%s: a list is a list", verb)
	}
}

// broken is a pipe whose reader is gone, or a disk that is full.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A command whose output is lost does not say that all went well: a script would go on with an empty file.
func TestLostOutputIsAnError(t *testing.T) {
	t.Parallel()
	b, _ := cannedGateway(t)
	for _, verb := range append(slices.Clone(verbs), "tasks watch "+uuid1, "help", "dlq drop 1-0 --yes", "mq delete orders --yes") {
		for _, output := range []string{"table", "json", "jsonl"} {
			var said strings.Builder
			std := cli.IO{In: strings.NewReader(""), Out: broken{}, Err: &said, Getenv: func(k string) string { return b.env[k] }}
			code := cli.Run(t.Context(), std, append(strings.Fields(verb), "-o", output), cli.Commands, submit.Commands)
			require.NotZero(t, code, "%s -o %s", verb, output)
			require.Contains(t, said.String(), "no space left", "%s -o %s", verb, output)
		}
	}
}

// Files are what people name: with any name, of any kind.
func TestSubmitOfOddFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := map[string]string{}
	b.mux.HandleFunc("POST /api/knowledge/documents/upload-async", func(w http.ResponseWriter, r *http.Request) {
		form, err := r.MultipartReader()
		require.NoError(t, err)
		for {
			part, err := form.NextPart()
			if err != nil {
				break
			}
			text, _ := io.ReadAll(part)
			got[part.FileName()] = string(text)
		}
		reply(w, http.StatusAccepted, aTask("x", "QUEUED"))
	})
	dir := t.TempDir()
	for _, name := range []string{"Übersicht.txt", `quo"te.txt`, "two words.md", "-o", "empty", "line\nend", "\u202egpj.exe"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("of "+name), 0o600))
		require.Zero(t, b.run(t.Context(), "submit", "--", path), "%q: %s", name, b.err.String())
		require.NotContains(t, b.out.String()+b.err.String(), "\x1b", "%q", name)
	}
	require.Len(t, got, 7)
	require.Contains(t, slices.Collect(maps.Values(got)), "of line\nend")
	require.NoError(t, os.Symlink("Übersicht.txt", filepath.Join(dir, "link")))
	require.Zero(t, b.run(t.Context(), "submit", filepath.Join(dir, "link")))
	require.Equal(t, "of Übersicht.txt", got["link"])

	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	for _, odd := range []string{"pipe", "dangling", "no/such/file"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		require.Equal(t, cli.ExitBadInput, b.run(ctx, "submit", filepath.Join(dir, odd)), "%q: %s", odd, b.err.String())
		cancel()
	}
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "submit", "/dev/zero"), "which never ends")
	require.Len(t, got, 8, "nothing of them was sent")
}

// One bad file among many does not keep the others away, and the output says what became of each.
func TestSubmitGoesOnAfterABadFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("POST /api/knowledge/documents/upload-async", func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseMultipartForm(1<<20))
		name := r.MultipartForm.File["file"][0].Filename
		if name == "refused.txt" {
			reply(w, http.StatusUnsupportedMediaType, wire.Problem{Code: "UNSUPPORTED_TYPE", Message: "a program", Status: 415})
			return
		}
		reply(w, http.StatusAccepted, aTask(name, "QUEUED"))
	})
	files := []string{"submit", "-o", "json"}
	for _, name := range []string{"a.txt", "refused.txt", "b.txt", "c.txt", "d.txt", "e.txt", "f.txt"} {
		files = append(files, write(t, name, name))
	}
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), append(files, "missing.txt")...))
	done := decoded[[]struct {
		File, Error string
		Task        *wire.AcceptedTask
	}](t, b)
	require.Len(t, done, 8)
	for i, d := range done {
		require.Equal(t, append(files, "missing.txt")[3+i], d.File, "in the order of the command line")
		require.Equal(t, d.Task == nil, d.Error != "", d.File)
	}
	require.Contains(t, done[1].Error, "UNSUPPORTED_TYPE")
	require.Contains(t, done[7].Error, "no such file")
	require.Contains(t, b.err.String(), "refused.txt: UNSUPPORTED_TYPE: a program", "the first error is the command's")
}

// timeUp is a context whose deadline has come when up is closed.
type timeUp struct {
	context.Context
	up chan struct{}
}

func (c timeUp) Done() <-chan struct{} { return c.up }

func (c timeUp) Err() error {
	select {
	case <-c.up:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Waiting ends with the person's patience, and says which tasks go on without them.
func TestWaitEndsInTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("POST /api/knowledge/documents/upload-async", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		reply(w, http.StatusAccepted, aTask("slow", "QUEUED"))
	})
	streaming := make(chan struct{})
	b.mux.HandleFunc("GET /api/knowledge/tasks/slow/events", func(w http.ResponseWriter, r *http.Request) {
		events(w, "slow", "RUNNING")
		_ = http.NewResponseController(w).Flush()
		select {
		case streaming <- struct{}{}:
		case <-r.Context().Done():
		}
		<-r.Context().Done()
	})
	file := write(t, "a.txt", "a")
	up := make(chan struct{})
	go func() { <-streaming; close(up) }()
	require.Equal(t, cli.ExitTimeout, b.run(timeUp{t.Context(), up}, "submit", file, "--wait"))
	require.Contains(t, b.out.String(), "slow", "the task is named, it goes on")
	ctx, interrupt := context.WithCancel(t.Context())
	go func() { <-streaming; interrupt() }()
	require.Equal(t, cli.ExitInterrupted, b.run(ctx, "submit", file, "--wait", "-o", "json"))
	require.Contains(t, b.out.String(), `"taskId": "slow"`)
	require.Equal(t, cli.ExitTimeout, b.run(t.Context(), "submit", file, "--wait", "--timeout", "1ms"))
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "submit", file, "--timeout", "soon"))
}

// A stream of events that is damaged ends the wait or is taken up again; it never makes a task look finished.
func TestDamagedEvents(t *testing.T) {
	t.Parallel()
	done, err := json.Marshal(aTask("x", "SUCCEEDED"))
	require.NoError(t, err)
	for name, first := range map[string]string{
		"no JSON":       "data: {\"taskId\":\n\n",
		"another shape": "data: [1,2]\n\n",
		"no colon":      "data\n\nid\n\n",
		"too long":      "data: \"" + strings.Repeat("x", 2<<20) + "\"\n\n",
		"nothing":       "",
		"a comment":     ": heartbeat\n\n",
		"no status":     "data: {}\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			calls := 0
			b.mux.HandleFunc("GET /api/knowledge/tasks/x/events", func(w http.ResponseWriter, _ *http.Request) {
				if calls++; calls == 1 {
					_, _ = io.WriteString(w, first)
					return
				}
				_, _ = io.WriteString(w, "data: "+string(done)+"\n\n")
			})
			require.Zero(t, b.run(t.Context(), "tasks", "watch", "x", "-o", "json"), b.err.String())
			require.Equal(t, 2, calls)
			require.EqualValues(t, "SUCCEEDED", decoded[wire.Task](t, b).Status)
		})
	}
	b := setup(t)
	b.mux.HandleFunc("GET /api/knowledge/tasks/x/events", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusNotFound, wire.Problem{Code: "TASK_NOT_FOUND", Message: "no such task", Status: 404})
	})
	require.Equal(t, cli.ExitNotFound, b.run(t.Context(), "tasks", "watch", "x"), "a refusal is not asked again")
}

// Ids are parts of an address, and only that: none reaches another route or adds a parameter.
func TestIdsStayInTheirPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked []string
	b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.EscapedPath()+"?"+r.URL.RawQuery)
		reply(w, http.StatusNotFound, wire.Problem{Code: "NOT_FOUND", Message: "no such thing"})
	})
	const evil = "a/../b?x=1#f%2f"
	for _, verb := range [][]string{
		{"tasks", "get"}, {"tasks", "explain"}, {"tasks", "retry"}, {"tasks", "cancel", "--yes"}, {"tasks", "watch"}, {"outbox", "requeue"},
		{"dlq", "get"}, {"dlq", "replay"}, {"dlq", "drop", "--yes"}, {"mq", "groups"}, {"mq", "partitions"}, {"mq", "delete", "--yes"},
		{"mq", "recent"}, {"mq", "trim", "--finished", "--yes"},
	} {
		asked = nil
		require.Equal(t, cli.ExitNotFound, b.run(t.Context(), append(verb, evil)...), "%v: %s", verb, b.err.String())
		require.Len(t, asked, 1, verb)
		require.Contains(t, asked[0], "/a%2F..%2Fb%3Fx=1%23f%252f", verb)
		require.NotContains(t, asked[0], "?x=1", verb)
	}
}
