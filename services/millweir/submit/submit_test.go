package submit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/submit"
)

// received is what a gateway of the test's own was sent.
type received struct {
	mu    sync.Mutex
	names []string
	keys  []string
}

// uploads takes uploads in; say may refuse the nth one (from 1) and returns true then.
func (b *bundle) uploads(t *testing.T, say func(w http.ResponseWriter, name string, n int) bool) *received {
	t.Helper()
	got := &received{}
	b.mux.HandleFunc("POST /api/knowledge/documents/upload-async", func(w http.ResponseWriter, r *http.Request) {
		if r.ParseMultipartForm(1<<20) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		name := r.MultipartForm.File["file"][0].Filename
		got.mu.Lock()
		got.names, got.keys = append(got.names, name), append(got.keys, r.Header.Get("Idempotency-Key"))
		n := len(got.names)
		got.mu.Unlock()
		if say == nil || !say(w, name, n) {
			reply(w, http.StatusAccepted, aTask("task-of-"+name, "QUEUED"))
		}
	})
	return got
}

// sorted are the names of what was sent since the last call.
func (g *received) sorted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := slices.Sorted(slices.Values(g.names))
	g.names, g.keys = nil, nil
	return names
}

// tree makes files in a folder of the test's own.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("text of "+name), 0o600))
	}
	return dir
}

func TestSubmitSendsFilesAndWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.txt"), filepath.Join(dir, "bad.txt")
	require.NoError(t, os.WriteFile(good, []byte("good text"), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("bad text"), 0o600))
	b.mux.HandleFunc("POST /api/knowledge/documents/upload-async", func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseMultipartForm(1<<20))
		require.Equal(t, "notes", r.FormValue("knowledgeBase"))
		name := r.MultipartForm.File["file"][0].Filename
		reply(w, 202, aTask(strings.TrimSuffix(name, ".txt"), "QUEUED"))
	})
	for id, end := range map[string]string{"good": "SUCCEEDED", "bad": "DEAD"} {
		b.mux.HandleFunc("GET /api/knowledge/tasks/"+id+"/events", func(w http.ResponseWriter, _ *http.Request) { events(w, id, "RUNNING", end) })
	}
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "submit", good, "--kb", "notes", "--wait"))
	require.Contains(t, b.err.String(), "SUCCEEDED")
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "submit", good, bad, "--kb", "notes", "--wait", "-o", "json"))
	var got []struct {
		Task  *wire.AcceptedTask
		Error string
	}
	require.NoError(t, json.Unmarshal(b.out.Bytes(), &got))
	require.EqualValues(t, "SUCCEEDED", got[0].Task.Status)
	require.Contains(t, got[1].Error, "DEAD")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "submit", good, "--kb", "notes"), "without --wait the upload is all")
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "submit", filepath.Join(dir, "none.txt"), "--kb", "notes"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "submit", dir, "--kb", "notes"), "a folder is what is in it")
	require.Contains(t, b.err.String(), "2 files: 2 accepted\n")
	b.terminal = true
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "submit", good, "--kb", "notes", "--wait"))
	require.Contains(t, b.err.String(), "A\x1b[J", "bars are redrawn on a terminal")
	b.env["NO_COLOR"] = "1"
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "submit", good, "--kb", "notes", "--wait"))
	require.NotContains(t, b.err.String(), "\x1b[32m")
}

// A folder is all that people put into it, and nothing that systems left there.
func TestSubmitTakesFoldersAndPatterns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.uploads(t, nil)
	dir := tree(t, "a.txt", "b/c.md", "b/d/e.txt", ".hidden/f.txt", ".g", "Thumbs.db", "~$h.docx", "b/i.tmp", "__MACOSX/j.txt", "k~", "b/[odd].txt")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, os.Symlink("..", filepath.Join(dir, "b/circle")))
	require.NoError(t, os.Symlink("../a.txt", filepath.Join(dir, "b/link.txt")))
	require.Zero(t, b.run(t.Context(), "submit", dir), b.err.String())
	require.Equal(t, []string{"[odd].txt", "a.txt", "c.md", "e.txt", "link.txt"}, got.sorted())
	require.Contains(t, b.err.String(), "5 files: 5 accepted, 9 left out (2 hidden, 5 left by systems, 1 links to folders, 1 neither file nor folder)\n")

	require.Zero(t, b.run(t.Context(), "submit", filepath.Join(dir, "*")), "what a shell would have expanded")
	require.Len(t, got.sorted(), 9, "named by a pattern: leavings too, but nothing hidden")
	require.Zero(t, b.run(t.Context(), "submit", filepath.Join(dir, "b", "[odd].txt")))
	require.Equal(t, []string{"[odd].txt"}, got.sorted(), "a file that is there is no pattern")
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "submit", filepath.Join(dir, "*.pdf")))
	require.Contains(t, b.err.String(), "NO_SUCH_FILE")
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "submit", filepath.Join(dir, strings.Repeat("n", 300)+"*")))
	require.Contains(t, b.err.String(), "NO_SUCH_FILE", "what cannot be a name, as on Windows every pattern, is one all the same")
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "submit", dir, "--title", "t"))
	require.Zero(t, b.run(t.Context(), "submit", filepath.Join(dir, ".g")), "what is named is sent")
	require.Equal(t, []string{".g"}, got.sorted())
}

// Standard input has no name of its own, and may have to be sent again.
func TestSubmitOfStandardInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.uploads(t, func(w http.ResponseWriter, _ string, n int) bool {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			reply(w, http.StatusServiceUnavailable, map[string]any{"code": "BACKLOG_FULL", "message": "much", "retryAfterSeconds": 1})
		}
		return n == 1
	})
	b.in = "piped text"
	for _, wrong := range [][]string{{"submit", "-"}, {"submit", "-", "x", "--name", "a"}, {"submit", "../cli/testdata/a.txt", "--name", "a"}} {
		require.Equal(t, cli.ExitUsage, b.run(t.Context(), wrong...), wrong)
	}
	require.Zero(t, b.run(t.Context(), "submit", "-", "--name", "note.txt"), b.err.String())
	require.Contains(t, b.err.String(), "waits 1s: BACKLOG_FULL")
	require.Equal(t, []string{"note.txt", "note.txt"}, got.names)
	require.Equal(t, got.keys[0], got.keys[1], "the same is the same task")
	require.NotEmpty(t, got.keys[0])
}

// An address is fetched by the gateway; with --wait the document that comes of it is followed.
func TestSubmitOfAnAddress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("POST /api/workflows/apply", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		require.Contains(t, string(text), `"workflowId":"ingest.url","chatId":"cli","payload":{"knowledgeBase":"notes","metadata":{"lang":"de"},"url":"https://example.com/a?b"}`)
		reply(w, http.StatusAccepted, map[string]any{"data": map[string]any{"taskId": "w", "status": "QUEUED"}})
	})
	b.mux.HandleFunc("GET /api/knowledge/tasks/w/events", func(w http.ResponseWriter, _ *http.Request) { events(w, "w", "SUCCEEDED") })
	b.mux.HandleFunc("GET /api/knowledge/tasks/d/events", func(w http.ResponseWriter, _ *http.Request) { events(w, "d", "DEAD") })
	b.mux.HandleFunc("GET /api/workflows/tasks/w", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"data": map[string]any{"taskId": "w", "status": "SUCCEEDED", "result": map[string]any{"taskId": "d"}}})
	})
	args := []string{"submit", "https://example.com/a?b", "--kb", "notes", "--meta", "lang=de"}
	require.Zero(t, b.run(t.Context(), args...), b.err.String())
	require.Contains(t, b.out.String(), "https://example.com/a?b  w     QUEUED")
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), append(args, "--wait")...))
	require.Contains(t, b.err.String(), "task d is DEAD")
}

// What was accepted is not sent again after Ctrl-C; what has changed is.
func TestSubmitResumes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cache = t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	var all atomic.Bool
	got := b.uploads(t, func(_ http.ResponseWriter, _ string, n int) bool {
		if n == 3 && !all.Load() {
			interrupt()
			panic(http.ErrAbortHandler) // a reply may reach the client before it sees that it was interrupted
		}
		return false
	})
	dir := tree(t, "a.txt", "b.txt", "c.txt", "d.txt", "e.txt")
	require.Equal(t, cli.ExitInterrupted, b.run(ctx, "submit", dir, "--parallel", "1"))
	require.Contains(t, b.err.String(), "with --resume (journal "+b.cache+"/millweir/submit-")
	require.Contains(t, b.err.String(), "millweir submit: interrupted\n")
	first := slices.Clone(got.keys)
	require.Equal(t, []string{"a.txt", "b.txt", "c.txt"}, got.sorted())
	all.Store(true)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.txt"), []byte("text of B.txt"), 0o600)) // as long as before
	now := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a.txt"), now, now), "touched, but the same")
	require.Zero(t, b.run(t.Context(), "submit", dir, "--resume"), b.err.String())
	require.Contains(t, b.err.String(), "5 files: 4 accepted, 1 accepted before\n")
	require.Contains(t, b.out.String(), "task-of-a.txt  accepted before")
	got.mu.Lock()
	require.Contains(t, got.keys, first[2], "what nobody knows the outcome of is sent under the same key")
	require.NotContains(t, got.keys, first[1], "another content is another task")
	got.mu.Unlock()
	require.Equal(t, []string{"b.txt", "c.txt", "d.txt", "e.txt"}, got.sorted())
	require.Zero(t, b.run(t.Context(), "submit", dir, "--resume", "-o", "json"))
	require.Empty(t, got.sorted())
	require.Contains(t, b.out.String(), `"earlierTaskId": "task-of-e.txt"`)
	require.Zero(t, b.run(t.Context(), "submit", dir, "--resume", "--kb", "other"))
	require.Len(t, got.sorted(), 5, "another base knows nothing of it")
	require.Zero(t, b.run(t.Context(), "submit", dir))
	require.Len(t, got.sorted(), 5, "who does not say --resume wants all sent")
}

// A journal may be cut off, of another version, or no journal at all: nothing else is overwritten.
func TestJournalsThatAreNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.uploads(t, nil)
	dir := tree(t, "a.txt", "b.txt")
	letter := filepath.Join(t.TempDir(), "letter.txt")
	put(t, letter, "Dear Anna,\n")
	for _, file := range []string{letter, dir, filepath.Join(dir, "a.txt/x")} {
		for _, resume := range []string{"--resume=false", "--resume"} {
			code := b.run(t.Context(), "submit", dir, "--journal", file, resume)
			require.Contains(t, []int{cli.ExitBadInput, cli.ExitFailed}, code, "%s: %s", file, b.err.String())
			require.Contains(t, b.err.String(), "journal ")
		}
	}
	text, err := os.ReadFile(letter)
	require.NoError(t, err)
	require.Equal(t, "Dear Anna,\n", string(text))
	require.Empty(t, got.sorted())

	journal := filepath.Join(t.TempDir(), "deep", "j")
	require.Zero(t, b.run(t.Context(), "submit", dir, "--journal", journal), b.err.String())
	require.Len(t, got.sorted(), 2)
	text, err = os.ReadFile(journal)
	require.NoError(t, err)
	info, err := os.Stat(journal)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	lines := bytes.SplitAfter(text, []byte("\n"))
	slices.SortFunc(lines[1:3], bytes.Compare) // they are sent at once
	require.NoError(t, os.WriteFile(journal, slices.Concat(lines[0], []byte("{\"path\":\n\x00\xff\nnull\n7\n"), lines[1], lines[2][:20]), 0o600))
	require.Zero(t, b.run(t.Context(), "submit", dir, "--journal", journal, "--resume"), b.err.String())
	require.Len(t, got.sorted(), 1, "the line that was cut off is forgotten")
	require.Zero(t, b.run(t.Context(), "submit", dir, "--journal", journal, "--resume"), b.err.String())
	require.Empty(t, got.sorted())
	require.NoError(t, os.Truncate(journal, 0))
	require.Zero(t, b.run(t.Context(), "submit", dir, "--journal", journal, "--resume"), b.err.String())
	require.Len(t, got.sorted(), 2)
}

// Failures are summed up by their cause with what to do; too many of them, or one that all would share, end the run.
func TestSubmitSumsUpFailures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refuse := func(status int, code string) func(w http.ResponseWriter, name string, n int) bool {
		return func(w http.ResponseWriter, name string, _ int) bool {
			if strings.HasSuffix(name, ".exe") {
				reply(w, status, map[string]any{"code": code, "message": "no\x1b[2J", "remedy": "Send a document."})
			}
			return strings.HasSuffix(name, ".exe")
		}
	}
	got := b.uploads(t, refuse(http.StatusUnsupportedMediaType, "UNSUPPORTED_TYPE"))
	dir := tree(t, "a.exe", "b.exe", "c.exe", "d.txt")
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "e.txt")))
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "submit", dir))
	require.Contains(t, b.err.String(), "5 files: 1 accepted, 4 failed\n")
	require.Regexp(t, `UNSUPPORTED_TYPE +3 +\S+/a.exe +Send a document.\nNO_SUCH_FILE +1 +\S+/e.txt +Look at the path.\nmillweir submit: 4 of 5 files failed\n`, b.err.String())
	require.Len(t, got.sorted(), 4)
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "submit", dir, "--max-errors", "2", "--parallel", "1"))
	require.Contains(t, b.err.String(), "ended after 2 failed files")
	require.Equal(t, []string{"a.exe", "b.exe"}, got.sorted())

	b = setup(t)
	got = b.uploads(t, refuse(http.StatusForbidden, "INSUFFICIENT_SCOPE"))
	require.Equal(t, cli.ExitAuth, b.run(t.Context(), "submit", dir, "--parallel", "1"))
	require.Len(t, got.sorted(), 1, "the key will not become better")
	b = setup(t)
	got = b.uploads(t, refuse(http.StatusNotFound, "KNOWLEDGE_BASE_NOT_FOUND"))
	require.Equal(t, cli.ExitNotFound, b.run(t.Context(), "submit", dir, "--parallel", "1", "--kb", "laws"))
	require.Len(t, got.sorted(), 1, "no other file will find it")
	require.Contains(t, b.err.String(), "millweir bases create laws makes it")
	b.server.Close()
	require.Equal(t, cli.ExitServer, b.run(t.Context(), "submit", dir, "--parallel", "1"))
	require.Contains(t, b.err.String(), "millweir doctor")
	for _, wrong := range []string{"--parallel=0", "--parallel=65", "--max-errors=-1"} {
		require.Equal(t, cli.ExitUsage, b.run(t.Context(), "submit", dir, wrong))
	}
}

// A Retry-After that nobody can wait for is a failure with the gateway's own code.
func TestRetryAfterThatIsTooLong(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"601", "99999999999999999999", "-1", "soon", ""} {
		b := setup(t)
		b.uploads(t, func(w http.ResponseWriter, _ string, _ int) bool {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})
		require.Equal(t, cli.ExitRateLimited, b.run(t.Context(), "submit", "../cli/testdata/a.txt"), header)
	}
}

// What is kept of a hundred thousand files is bounded by what runs, not by how many they are.
func TestSubmitOfManyFilesKeepsLittle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mux.HandleFunc("POST /api/workflows/apply", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		reply(w, http.StatusAccepted, map[string]any{"data": map[string]any{"taskId": strings.Repeat("t", 2000), "status": "QUEUED"}})
	})
	const files = 20_000 // 40 MB of results
	args := []string{"submit", "--parallel", "16", "-o", "jsonl"}
	for i := range files {
		args = append(args, fmt.Sprintf("http://example.com/%d", i))
	}
	var out counter
	std := cli.IO{In: strings.NewReader(""), Out: &out, Err: io.Discard, Getenv: func(k string) string { return b.env[k] }}
	require.Zero(t, cli.Run(t.Context(), std, args, submit.Commands))
	require.Equal(t, files, out.lines)
	require.Less(t, out.most, uint64(160<<20), "bytes of the heap at most")
}

// counter counts lines, and looks now and then how much memory is in use.
type counter struct {
	lines int
	most  uint64
}

func (c *counter) Write(p []byte) (int, error) {
	for range bytes.Count(p, []byte("\n")) {
		if c.lines++; c.lines%5000 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			c.most = max(c.most, m.HeapAlloc)
		}
	}
	return len(p), nil
}

// A file may change or vanish between being found and being read; lines of a terminal stay whole.
func TestSubmitOnATerminal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.terminal = true
	b.width = 60
	b.uploads(t, func(w http.ResponseWriter, name string, _ int) bool {
		if name == "bad.txt" {
			reply(w, http.StatusUnprocessableEntity, map[string]any{"code": "ENCRYPTED", "message": "evil\x1b[2J", "remedy": "Remove it."})
		}
		return name == "bad.txt"
	})
	dir := tree(t, "a.txt", "bad.txt", "c\nd.txt")
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "submit", dir))
	require.Contains(t, b.err.String(), "3 of 3", "the line for all")
	require.Contains(t, b.err.String(), "bad.txt: \x1b[31mENCRYPTED: evil\\x1b[2J")
	require.NotContains(t, b.err.String()+b.out.String(), "evil\x1b")
	require.NotContains(t, b.err.String()+b.out.String(), "c\nd.txt")
	var decoded any
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "submit", dir, "-o", "json"))
	require.NoError(t, json.Unmarshal(b.out.Bytes(), &decoded), "nothing else stands in the output")
}
