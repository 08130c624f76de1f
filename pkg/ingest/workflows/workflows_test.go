package workflows_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

func TestMain(m *testing.M) { ingesttest.Main(m) }

// bench runs the workflows over a world; loopback may be fetched from.
type bench struct {
	*ingesttest.World
	t   *testing.T
	all map[string]workflow.Workflow
}

func newBench(t *testing.T, w *ingesttest.World, networks string) *bench {
	t.Helper()
	allowed, err := workflows.ParseNetworks(networks)
	require.NoError(t, err)
	b := &bench{World: w, t: t, all: map[string]workflow.Workflow{}}
	worker, err := w.App.Worker()
	require.NoError(t, err)
	for _, x := range workflows.NewPolling(w.App, w.Store, allowed, worker, time.Millisecond) {
		b.all[x.ID] = x
	}
	return b
}

// task is the row of a workflow's task of the world's user.
func (b *bench) task() taskstate.Task {
	return taskstate.Task{ID: ingest.NewID(), UserID: b.Caller.Scope.UserID, Channel: "http", Type: workflow.Type}
}

// run is an attempt of a task.
func (b *bench) run(t taskstate.Task, id, payload string) (json.RawMessage, error) {
	return b.all[id].Run(b.t.Context(), workflow.Run{Task: t, Key: t.ID, Payload: json.RawMessage(payload), Report: func(taskstate.Progress) {}})
}

// taken is the result of an attempt that takes a document in.
func (b *bench) taken(t taskstate.Task, id, payload string) (r workflows.Taken) {
	b.t.Helper()
	out, err := b.run(t, id, payload)
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(out, &r))
	return r
}

// fails is the failure of an attempt.
func (b *bench) fails(id, payload string) taskstate.Failure {
	b.t.Helper()
	_, err := b.run(b.task(), id, payload)
	require.Error(b.t, err)
	return workflow.Handler{}.Classify(err)
}

// A text becomes a document, once however often the task runs.
func TestATextIsTakenInOnce(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newBench(t, w, "")
		task := b.task()
		const payload = `{"text":"\n  The first line\nand more\n","metadata":{"lang":"en"}}`
		first := b.taken(task, workflows.IngestText, payload)
		require.Equal(t, first, b.taken(task, workflows.IngestText, payload), "after an attempt whose end was lost")
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM ingest_task"))
		require.Equal(t, taskstate.StatusSucceeded, w.Process(first.TaskID).Status)
		d := w.Document(first.DocumentID)
		require.Equal(t, []any{"The first line", first.KnowledgeBaseID}, []any{d.Title, d.BaseID})
		require.JSONEq(t, `{"lang":"en"}`, string(d.Metadata))
		other := b.taken(b.task(), workflows.IngestText, payload)
		require.Equal(t, []any{true, first.DocumentID}, []any{other.Duplicate, other.DocumentID}, "the same bytes by another task")
		named := b.taken(b.task(), workflows.IngestText, `{"text":"else","title":"T","fileName":"n.md"}`)
		require.Equal(t, []string{"T", "n.md"}, []string{w.Document(named.DocumentID).Title, w.Document(named.DocumentID).FileName})
		w.CheckInvariants()
		w.CheckFiles()
	})
}

func TestTextsThatCannotBeTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t, ingesttest.NewWorld(t, ingesttest.Options{}), "")
	f := b.fails(workflows.IngestText, `{"text":"a","metadata":{"a":{}}}`)
	require.Equal(t, []any{workflow.CodePayload, true}, []any{f.Code, f.Permanent})
	f = b.fails(workflows.IngestText, `{"text":"a","knowledgeBase":"`+ingest.NewID()+`"}`)
	require.Equal(t, []any{workflows.CodeNoBase, true}, []any{f.Code, f.Permanent})
	require.Empty(t, b.Stored(), "nothing is left of what was refused")
}

// A backlog that is full makes the task wait, and counts no attempt.
func TestAFullBacklogIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Config: func(c *ingest.Config) { c.MaxBacklog = 1 }})
	b := newBench(t, w, "")
	w.Upload("one\n")
	f := b.fails(workflows.IngestText, `{"text":"a"}`)
	require.Equal(t, []any{workflow.CodeThrottle, true, 30 * time.Second}, []any{f.Code, f.Throttled, f.RetryAfter})
}

// What is at an address is fetched until it was taken in, and not again after that, whatever is there now.
func TestAnAddressIsTakenInOnce(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	b := newBench(t, w, "127.0.0.0/8")
	var asked atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		switch r.URL.Path {
		case "/page":
			out.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprintf(out, "<p>version %d</p>\n", n)
		case "/named":
			out.Header().Set("Content-Disposition", `attachment; filename="../../etc/report.txt"`)
			_, _ = io.WriteString(out, "a report\n")
		case "/moved":
			http.Redirect(out, r, "/page", http.StatusFound)
		case "/cut":
			out.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(out, "half")
		}
	}))
	defer site.Close()
	task := b.task()
	payload := `{"url":"` + site.URL + `/page"}`
	first := b.taken(task, workflows.IngestURL, payload)
	require.Equal(t, first, b.taken(task, workflows.IngestURL, payload))
	require.EqualValues(t, 1, asked.Load())
	require.Equal(t, "page.html", w.Document(first.DocumentID).FileName)
	require.NotEqual(t, first.DocumentID, b.taken(b.task(), workflows.IngestURL, `{"url":"`+site.URL+`/moved"}`).DocumentID)
	require.Equal(t, "report.txt", w.Document(b.taken(b.task(), workflows.IngestURL, `{"url":"`+site.URL+`/named"}`).DocumentID).FileName)
	require.Equal(t, "mine.txt", w.Document(b.taken(b.task(), workflows.IngestURL, `{"url":"`+site.URL+`/page","fileName":"mine.txt"}`).DocumentID).FileName)
	f := b.fails(workflows.IngestURL, `{"url":"`+site.URL+`/cut"}`)
	require.Equal(t, []any{workflows.CodeURLFailed, false}, []any{f.Code, f.Permanent})
	f = b.fails(workflows.IngestURL, `{"url":"`+site.URL+`/nothing"}`)
	require.Equal(t, []any{string(ingest.CodeEmpty), true}, []any{f.Code, f.Permanent})
	w.CheckFiles()
}

// What a server says decides whether it is asked again.
func TestServersThatDoNotGiveIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, ingesttest.NewWorld(t, ingesttest.Options{}), "127.0.0.0/8")
	site := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		if r.URL.Query().Has("wait") {
			out.Header().Set("Retry-After", "7")
		}
		if r.URL.Path == "/round" {
			http.Redirect(out, r, "/round", http.StatusFound)
			return
		}
		out.WriteHeader(max(status, 200))
	}))
	defer site.Close()
	for path, want := range map[string][]any{
		"/404":      {workflows.CodeURLRefused, true, false},
		"/403?wait": {workflows.CodeURLRefused, true, false},
		"/206":      {workflows.CodeURLRefused, true, false},
		"/500":      {workflows.CodeURLFailed, false, false},
		"/503?wait": {workflow.CodeThrottle, false, true},
		"/429":      {workflow.CodeThrottle, false, true},
		"/round":    {workflows.CodeURLRefused, true, false},
	} {
		f := b.fails(workflows.IngestURL, `{"url":"`+site.URL+path+`"}`)
		require.Equal(t, want, []any{f.Code, f.Permanent, f.Throttled}, path)
	}
	site.Close()
	f := b.fails(workflows.IngestURL, `{"url":"`+site.URL+`/"}`)
	require.Equal(t, []any{workflows.CodeURLFailed, false}, []any{f.Code, f.Permanent})
}

// Addresses inside of the operator's networks are not fetched, however they are written and whoever redirects there.
func TestPrivateAddressesAreNotFetched(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer inside.Close()
	port := inside.URL[strings.LastIndex(inside.URL, ":"):]
	b := newBench(t, w, "")
	for _, url := range []string{
		inside.URL, "http://localhost" + port, "http://[::1]" + port, "http://[::ffff:127.0.0.1]" + port, "http://0.0.0.0" + port,
		"http://127.1" + port, "http://2130706433" + port, "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://192.168.0.1/",
		"http://0177.0.0.1" + port, "http://a@127.0.0.1" + port + `\@ok.example/`, "http://ok.example#@127.0.0.1" + port, "ftp://127.0.0.1/", "redis://127.0.0.1",
		"http://[fd00::1]/", "http://[fe80::1%25lo]/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://", "http://user:pass@example.com/", "http://%zz/", "//127.0.0.1/",
	} {
		f := b.fails(workflows.IngestURL, string(must(json.Marshal(map[string]string{"url": url}))))
		if f.Code == workflows.CodeURLFailed { // a resolver that does not know such names: nothing was dialed
			require.Contains(t, f.Cause, "lookup", url)
			continue
		}
		require.Equal(t, []any{workflows.CodeURLForbidden, true}, []any{f.Code, f.Permanent}, "%s: %s", url, f.Cause)
	}
	var target atomic.Value
	outside := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		http.Redirect(out, r, target.Load().(string), http.StatusFound)
	}))
	defer outside.Close()
	b = newBench(t, w, "127.0.0.1/32, ::1/128")
	for _, url := range []string{"http://127.0.0.2" + port, "file:///etc/passwd", "http://user:pass@127.0.0.1" + port} {
		target.Store(url)
		f := b.fails(workflows.IngestURL, `{"url":"`+outside.URL+`"}`)
		require.Equal(t, []any{workflows.CodeURLForbidden, true}, []any{f.Code, f.Permanent}, "%s: %s", url, f.Cause)
	}
	_, err := workflows.ParseNetworks("10.0.0.0/8,nonsense")
	require.ErrorContains(t, err, `"nonsense" is no network such as 10.0.0.0/8`)
}

func must[T any](v T, _ error) T { return v }

// A document's stored file is taken in again as a new version, once; another's document is as unknown as none.
func TestADocumentIsTakenInAgain(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newBench(t, w, "")
		up := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), Title: "Mine"})
		w.Process(up.Task.ID)
		task, payload := b.task(), `{"documentId":"`+strings.ToUpper(up.Document.ID)+`"}`
		again := b.taken(task, workflows.IngestDocument, payload)
		require.Equal(t, up.Document.ID, again.DocumentID)
		require.NotEqual(t, up.Task.ID, again.TaskID)
		require.Equal(t, again, b.taken(task, workflows.IngestDocument, payload))
		require.Equal(t, taskstate.StatusSucceeded, w.Process(again.TaskID).Status)
		d := w.Document(up.Document.ID)
		require.Equal(t, []any{"Mine", "a.txt", int64(2)}, []any{d.Title, d.FileName, d.VisibleNo})
		require.Equal(t, []string{"one"}, w.Text(d.ID))

		foreign := b.task()
		foreign.UserID = "somebody else"
		for _, run := range []struct {
			task    taskstate.Task
			payload string
		}{{foreign, payload}, {b.task(), `{"documentId":"` + ingest.NewID() + `"}`}} {
			_, err := b.run(run.task, workflows.IngestDocument, run.payload)
			f := workflow.Handler{}.Classify(err)
			require.Equal(t, []any{workflows.CodeNoDocument, true}, []any{f.Code, f.Permanent})
		}
		w.CheckInvariants()
	})
}

// A new version that comes between the look at the old one and its acceptance stays the newest.
func TestAnotherUploadComesFirst(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	b := newBench(t, w, "")
	up := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n")})
	w.Process(up.Task.ID)
	came := false
	task, payload := b.task(), json.RawMessage(`{"documentId":"`+up.Document.ID+`"}`)
	meanwhile := func(taskstate.Progress) { // the file is being read
		if !came {
			came = true
			w.Process(w.Accept(ingest.Upload{File: w.Receive("a.txt", "two\n"), DocumentID: up.Document.ID}).Task.ID)
		}
	}
	_, err := b.all[workflows.IngestDocument].Run(t.Context(), workflow.Run{Task: task, Key: task.ID, Payload: payload, Report: meanwhile})
	require.ErrorIs(t, err, ingest.ErrChanged)
	require.False(t, workflow.Handler{}.Classify(err).Permanent)
	require.Equal(t, []string{"two"}, w.Text(up.Document.ID))
	again := b.taken(task, workflows.IngestDocument, string(payload))
	w.Process(again.TaskID)
	require.Equal(t, []string{"two"}, w.Text(up.Document.ID))
	w.CheckFiles()
}

func TestADocumentsFileIsGone(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	b := newBench(t, w, "")
	up := w.Upload("one\n")
	row := w.Task(up.Task.ID)
	require.NoError(t, os.Remove(filepath.Join(w.Dir, row.FilePath)))
	f := b.fails(workflows.IngestDocument, `{"documentId":"`+up.Document.ID+`"}`)
	require.Equal(t, []any{string(ingest.CodeFileMissing), true}, []any{f.Code, f.Permanent})
}

func TestADocumentIsDeleted(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	b := newBench(t, w, "")
	up := w.Upload("one\n")
	w.Process(up.Task.ID)
	payload := `{"documentId":"` + up.Document.ID + `"}`
	foreign := b.task()
	foreign.UserID = "somebody else"
	for _, c := range []struct {
		task taskstate.Task
		want bool
	}{{foreign, false}, {b.task(), true}, {b.task(), false}} {
		out, err := b.run(c.task, workflows.DeleteDocument, payload)
		require.NoError(t, err)
		var got workflows.Deleted
		require.NoError(t, json.Unmarshal(out, &got))
		require.Equal(t, workflows.Deleted{DocumentID: up.Document.ID, Deleted: c.want}, got)
	}
	w.SweepAll()
	w.CheckFiles()
}

func TestTheFirstLineIsTheTitle(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b", workflows.Title(" \n a\tb \n c"))
	require.Equal(t, strings.Repeat("ä", 79)+"…", workflows.Title(strings.Repeat("ä", 81)))
	require.Equal(t, strings.Repeat("a b ", 19)+"a b…", workflows.Title(strings.Repeat("a\tb\u0085", 30)), "a title with a tab is refused")
	require.Empty(t, workflows.Title(" \n"))
}
