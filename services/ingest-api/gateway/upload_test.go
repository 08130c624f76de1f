package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/uploads"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

func TestUploadAnswersTheTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.upload(ada, asyncPath, nil, file("a.txt", "hello"), part{field: "title", body: "  A title "})
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	got := decode[wire.AcceptedTask](t, w)
	require.Equal(t, "/api/knowledge/tasks/"+got.TaskID, w.Header().Get("Location"))
	require.Equal(t, taskstate.StatusQueued, got.Status)
	require.Equal(t, "A title", got.Document.Title)
	require.Equal(t, "default", got.Document.KnowledgeBase)
	require.False(t, got.Duplicate)
	require.Equal(t, &wire.Waiting{Reason: wire.WaitQueue}, got.Waiting)
	require.Zero(t, b.held())
}

func TestFieldsBeforeAfterAndInTheQuery(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string][]part{
		"before": {{field: "title", body: "T"}, file("a.txt", "x")},
		"after":  {file("a.txt", "x"), {field: "title", body: "T"}},
		"query":  {file("a.txt", "x")},
		"wins":   {file("a.txt", "x"), {field: "title", body: "T"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			target := asyncPath
			if name == "query" {
				target += "?title=T"
			}
			if name == "wins" {
				target += "?title=other"
			}
			w := b.upload(ada, target, nil, parts...)
			require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
			require.Equal(t, "T", decode[wire.AcceptedTask](t, w).Document.Title)
		})
	}
}

func TestSeveralFilesAnswerInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.upload(ada, asyncPath, nil, file("a.txt", "1"), file("b.exe", program), file("c.txt", ""), file("d.txt", "4"))
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	got := decode[struct {
		Items []struct {
			TaskID   string        `json:"taskId"`
			FileName string        `json:"fileName"`
			Error    *wire.Problem `json:"error"`
		} `json:"items"`
	}](t, w)
	require.Len(t, got.Items, 4)
	require.NotEmpty(t, got.Items[0].TaskID)
	require.Equal(t, "UNSUPPORTED_TYPE", got.Items[1].Error.Code)
	require.Equal(t, http.StatusUnsupportedMediaType, got.Items[1].Error.Status)
	require.Equal(t, "EMPTY_FILE", got.Items[2].Error.Code)
	require.Equal(t, "d.txt", got.Items[3].FileName)
	require.NotEmpty(t, got.Items[3].TaskID)
	require.Zero(t, b.held())
}

func TestDuplicateAnswersTheExistingDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.accept(ada, "a.txt", "same")
	w := b.upload(ada, asyncPath, nil, file("b.txt", "same"))
	require.Equal(t, http.StatusOK, w.Code)
	again := decode[wire.AcceptedTask](t, w)
	require.True(t, again.Duplicate)
	require.Equal(t, first.TaskID, again.TaskID)
	require.Equal(t, "/api/knowledge/tasks/"+first.TaskID, w.Header().Get("Location"))
	w = b.upload(ada, asyncPath+"?force=true", nil, file("b.txt", "same"))
	require.Equal(t, http.StatusAccepted, w.Code)
	require.NotEqual(t, first.TaskID, decode[wire.AcceptedTask](t, w).TaskID)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := []string{"Idempotency-Key", "order 66"}
	first := b.upload(ada, asyncPath, key, file("a.txt", "one"))
	require.Equal(t, http.StatusAccepted, first.Code)
	require.Empty(t, first.Header().Get("Idempotency-Replayed"))
	again := b.upload(ada, asyncPath, key, file("a.txt", "one"))
	require.Equal(t, http.StatusAccepted, again.Code)
	require.Equal(t, "true", again.Header().Get("Idempotency-Replayed"))
	require.Equal(t, decode[wire.AcceptedTask](t, first).TaskID, decode[wire.AcceptedTask](t, again).TaskID)
	b.refused(b.upload(ada, asyncPath, key, file("a.txt", "two")), http.StatusUnprocessableEntity, web.CodeKeyReused)
	require.Zero(t, b.held())
	// Another user's key is another key (A31).
	other := b.upload(bob, asyncPath, key, file("a.txt", "two"))
	require.Equal(t, http.StatusAccepted, other.Code)
	require.Empty(t, other.Header().Get("Idempotency-Replayed"))
	tasks, docs := b.count(t, "ingest_task"), b.count(t, "knowledge_document")
	require.Equal(t, []int{2, 2}, []int{tasks, docs})
	// Each file of a request has a key of its own.
	several := []part{file("c.txt", "3"), file("d.txt", "4")}
	key[1] = "several"
	require.Equal(t, http.StatusAccepted, b.upload(ada, asyncPath, key, several...).Code)
	require.Equal(t, "true", b.upload(ada, asyncPath, key, several...).Header().Get("Idempotency-Replayed"))
	tasks = b.count(t, "ingest_task")
	require.Equal(t, 4, tasks)
}

func TestIdempotencyKeyInUseWhileReceiving(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	body, kind := form(t, file("a.txt", "slow"))
	reader, writer := io.Pipe()
	headers := []string{"Content-Type", kind, "Idempotency-Key", "k"}
	done := make(chan int)
	go func() { done <- b.do(b.request(ada, http.MethodPost, asyncPath, reader, headers...)).Code }()
	_, err := writer.Write(body.Bytes()[:10]) // taken: the first request holds the key by now
	require.NoError(t, err)
	p := b.refused(b.upload(ada, asyncPath, []string{"Idempotency-Key", "k"}, file("a.txt", "slow")), http.StatusConflict, web.CodeKeyInUse)
	require.Equal(t, "IDEMPOTENCY_KEY_IN_USE", p.Code)
	_, err = writer.Write(body.Bytes()[10:])
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Equal(t, http.StatusAccepted, <-done)
	require.Equal(t, "true", b.upload(ada, asyncPath, []string{"Idempotency-Key", "k"}, file("a.txt", "slow")).Header().Get("Idempotency-Replayed"))
}

// slowly sends all but the last bytes of an upload of known length and returns a function that sends those and returns the status.
func (b *bench) slowly(key string, f part) (rest func() int) {
	body, kind := form(b.t, f)
	reader, writer := io.Pipe()
	r := b.request(ada, http.MethodPost, asyncPath, reader, "Content-Type", kind, "Idempotency-Key", key)
	r.ContentLength = int64(body.Len())
	done := make(chan int)
	go func() { done <- b.do(r).Code }()
	const last = 10
	_, err := writer.Write(body.Bytes()[:body.Len()-last])
	require.NoError(b.t, err)
	return func() int {
		_, err := writer.Write(body.Bytes()[body.Len()-last:])
		require.NoError(b.t, err)
		require.NoError(b.t, writer.Close())
		return <-done
	}
}

// A short request claims its key only when it is not received at once.
func TestAShortRequestThatComesSlowlyClaimsItsKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := []string{"Idempotency-Key", "k"}
	rest := b.slowly("k", file("a.txt", "slow"))
	claimed := func(n int64) {
		require.Eventually(t, func() bool { return b.svc.claims.Load() == n }, time.Minute, time.Millisecond)
	}
	claimed(1)
	require.Equal(t, 1, b.count(t, "upload_request"))
	b.refused(b.upload(ada, asyncPath, key, file("a.txt", "slow")), http.StatusConflict, web.CodeKeyInUse)
	require.Equal(t, http.StatusAccepted, b.upload(bob, asyncPath, key, file("a.txt", "slow")).Code, "another user's key is another key")
	// A second slow one is refused although the first has ended meanwhile: it asked while that one was being received.
	second := b.slowly("k", file("b.txt", "slow too"))
	claimed(2)
	require.Equal(t, http.StatusAccepted, rest())
	require.Equal(t, http.StatusConflict, second())
	require.Zero(t, b.held(), "what was refused is not kept")
	require.Zero(t, b.count(t, "upload_request"))
	require.Equal(t, "true", b.upload(ada, asyncPath, key, file("a.txt", "slow")).Header().Get("Idempotency-Replayed"))
}

// Requests that are received at once write no claim; the same one twice at the same moment is one task.
func TestShortRequestsThatComeAtOnceNeedNoClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.svc.Fail("BeginKey", errors.New("nobody claims"))
	const requests = 8
	var all sync.WaitGroup
	answers := make([]*httptest.ResponseRecorder, requests)
	for i := range requests {
		all.Go(func() { answers[i] = b.upload(ada, asyncPath, []string{"Idempotency-Key", "k"}, file("a.txt", "one")) })
	}
	all.Wait()
	replayed := 0
	for _, w := range answers {
		require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
		require.Equal(t, decode[wire.AcceptedTask](t, answers[0]).TaskID, decode[wire.AcceptedTask](t, w).TaskID)
		if w.Header().Get("Idempotency-Replayed") == "true" {
			replayed++
		}
	}
	require.Equal(t, requests-1, replayed)
	require.Equal(t, 1, b.count(t, "ingest_task"))
	require.Zero(t, b.held())
}

func TestBadUploads(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 10_000)
	var many []part
	for i := range 65 {
		many = append(many, file(fmt.Sprintf("%d.txt", i), "x"))
	}
	ok := file("a.txt", "x")
	for name, c := range map[string]struct {
		target  string
		headers []string
		parts   []part
		status  int
		code    string
		about   string
	}{
		"no file":           {parts: []part{{field: "title", body: "T"}}, status: 400, code: web.CodeFileRequired, about: "file"},
		"other part":        {parts: []part{{"document", "a.txt", "x"}}, status: 400, code: web.CodeFileRequired, about: "document"},
		"no file name":      {parts: []part{{field: "file", body: "x"}}, status: 400, code: web.CodeFileRequired, about: "file"},
		"empty file":        {parts: []part{file("a.txt", "")}, status: 422, code: "EMPTY_FILE"},
		"wrong type":        {parts: []part{file("a.pdf", program)}, status: 415, code: "UNSUPPORTED_TYPE"},
		"long title":        {parts: []part{ok, {field: "title", body: long}}, status: 422, code: web.CodeFieldTooLong, about: "title"},
		"huge title":        {parts: []part{ok, {field: "title", body: strings.Repeat("x", uploads.MaxFormFieldBytes+1)}}, status: 422, code: web.CodeFieldTooLong, about: "title"},
		"title not UTF-8":   {parts: []part{ok, {field: "title", body: "a\xff"}}, status: 422, code: web.CodeInvalidText, about: "title"},
		"title with NUL":    {parts: []part{ok, {field: "title", body: "a\x00b"}}, status: 422, code: web.CodeInvalidText, about: "title"},
		"base not UTF-8":    {parts: []part{ok, {field: "knowledgeBase", body: "\xc3("}}, status: 422, code: web.CodeInvalidText, about: "knowledgeBase"},
		"base with newline": {parts: []part{ok, {field: "knowledgeBase", body: "a\nb"}}, status: 422, code: web.CodeInvalidText, about: "knowledgeBase"},
		"long base":         {parts: []part{ok, {field: "knowledgeBase", body: strings.Repeat("b", 129)}}, status: 422, code: web.CodeFieldTooLong, about: "knowledgeBase"},
		"unknown base":      {parts: []part{ok, {field: "knowledgeBase", body: "none such"}}, status: 404, code: web.CodeBaseNotFound},
		"force":             {parts: []part{ok, {field: "force", body: "maybe"}}, status: 422, code: web.CodeInvalidField, about: "force"},
		"unknown field":     {parts: []part{ok, {field: "knowledge_base", body: "x"}}, status: 400, code: web.CodeUnknownParameter, about: "knowledge_base"},
		"unknown query":     {target: asyncPath + "?titel=x", parts: []part{ok}, status: 400, code: web.CodeUnknownParameter, about: "titel"},
		"65 parts":          {parts: many, status: 400, code: web.CodeTooManyParts},
		"too large":         {parts: []part{file("big.txt", strings.Repeat("x", 1<<20+1))}, status: 413, code: web.CodeTooLarge, about: "big.txt"},
		"too large later":   {parts: []part{ok, file("big.txt", strings.Repeat("x", 1<<20+1))}, status: 413, code: web.CodeTooLarge, about: "big.txt"},
		"empty key":         {headers: []string{"Idempotency-Key", ""}, parts: []part{ok}, status: 400, code: web.CodeInvalidKey, about: "Idempotency-Key"},
		"key not ASCII":     {headers: []string{"Idempotency-Key", "ä"}, parts: []part{ok}, status: 400, code: web.CodeInvalidKey, about: "Idempotency-Key"},
		"long key":          {headers: []string{"Idempotency-Key", strings.Repeat("k", 181)}, parts: []part{ok}, status: 400, code: web.CodeInvalidKey, about: "Idempotency-Key"},
		"wait":              {target: "/api/knowledge/documents/upload?waitSeconds=121", parts: []part{ok}, status: 400, code: web.CodeInvalidParameter, about: "waitSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if c.target == "" {
				c.target = asyncPath
			}
			p := b.refused(b.upload(ada, c.target, c.headers, c.parts...), c.status, c.code)
			require.Equal(t, c.about, p.Parameter)
			require.Zero(t, b.held(), "a received file was left")
			tasks := b.count(t, "ingest_task")
			require.Zero(t, tasks)
		})
	}
}

func TestFileJustFits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Equal(t, int64(1<<20), b.accept(ada, "a.txt", strings.Repeat("x", 1<<20)).Document.Bytes)
}

func TestBrokenBodies(t *testing.T) {
	t.Parallel()
	whole, kind := form(t, file("a.txt", "0123456789"), part{field: "title", body: "T"})
	head := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nX: "
	for name, c := range map[string]struct {
		kind, body string
		status     int
		code       string
	}{
		"not a form":       {"application/json", "{}", 415, web.CodeUnsupportedMedia},
		"no type":          {"", "x", 415, web.CodeUnsupportedMedia},
		"no boundary":      {"multipart/form-data", "x", 400, web.CodeBadMultipart},
		"long boundary":    {"multipart/form-data; boundary=" + strings.Repeat("b", 71), "x", 400, web.CodeBadMultipart},
		"empty":            {kind, "", 400, web.CodeIncompleteBody},
		"no parts":         {"multipart/form-data; boundary=b", "--b--\r\n", 400, web.CodeFileRequired},
		"cut in the file":  {kind, whole.String()[:150], 400, web.CodeIncompleteBody},
		"cut after a part": {kind, whole.String()[:whole.Len()-4], 400, web.CodeIncompleteBody},
		"cut between":      {kind, whole.String()[:strings.LastIndex(whole.String(), "\r\n--")], 400, web.CodeIncompleteBody},
		"large head":       {"multipart/form-data; boundary=b", head + strings.Repeat("h", 64<<10) + "\r\n\r\nx\r\n--b--\r\n", 400, web.CodeBadMultipart},
		"endless preamble": {"multipart/form-data; boundary=b", strings.Repeat("p", 64<<10), 400, web.CodeBadMultipart},
		"bad head":         {"multipart/form-data; boundary=b", "--b\r\nno colon\r\n\r\nx\r\n--b--\r\n", 400, web.CodeBadMultipart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			w := b.do(b.request(ada, http.MethodPost, asyncPath, strings.NewReader(c.body), "Content-Type", c.kind))
			b.refused(w, c.status, c.code)
			require.Zero(t, b.held())
		})
	}
}

func TestAnnouncedLengthIsJudgedBeforeTheBody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	body := &countingReader{r: strings.NewReader(strings.Repeat("x", 1<<20))}
	r := b.request(ada, http.MethodPost, asyncPath, body, "Content-Type", "multipart/form-data; boundary=b")
	r.ContentLength = 2 << 30
	w := b.do(r)
	b.refused(w, http.StatusRequestEntityTooLarge, web.CodeTooLarge)
	require.Equal(t, "close", w.Header().Get("Connection"))
	require.Zero(t, body.n)
}

func TestSumOfFilesIsLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var parts []part
	for i := range 6 {
		parts = append(parts, file(fmt.Sprint(i), strings.Repeat("x", 1<<20)))
	}
	body, kind := form(t, parts...)
	r := b.request(ada, http.MethodPost, asyncPath, body, "Content-Type", kind)
	r.ContentLength = -1
	b.refused(b.do(r), http.StatusRequestEntityTooLarge, web.CodeTooLarge)
	require.Zero(t, b.held())
}

type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// A33: who asks comes before anything of the body is read.
func TestAnonymousUploadIsNotRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	body := &countingReader{r: bytes.NewReader(make([]byte, 8<<20))}
	w := b.do(b.request(nobody, http.MethodPost, asyncPath, body, "Content-Type", "multipart/form-data; boundary=b"))
	b.refused(w, http.StatusUnauthorized, web.CodeUnauthenticated)
	require.Equal(t, "close", w.Header().Get("Connection"))
	require.Equal(t, `Bearer realm="millweir"`, w.Header().Get("WWW-Authenticate"))
	require.Zero(t, body.n)
}

func TestUploadServiceErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		err    error
		status int
		code   string
		held   int
	}{
		"disk":        {"Receive", fmt.Errorf("write: %w", ingest.ErrDiskFull), 507, web.CodeDiskFull, 0},
		"too large":   {"Receive", ingest.ErrTooLarge, 413, web.CodeTooLarge, 0},
		"encrypted":   {"Receive", ingest.Permanent(ingest.CodeEncrypted, "Remove it.", "a.pdf is encrypted"), 422, "ENCRYPTED", 0},
		"unknown":     {"Receive", errors.New("secret dsn user:pw@host"), 500, web.CodeInternal, 0},
		"backlog":     {"Accept", ingest.ErrBacklogFull, 503, web.CodeBacklogFull, 0},
		"honest":      {"Accept", waitError{ingest.ErrBacklogFull, 90 * time.Second}, 503, web.CodeBacklogFull, 0},
		"database":    {"Accept", fmt.Errorf("insert: %w", taskstate.ErrUnavailable), 503, web.CodeUnavailable, 0},
		"swept":       {"Accept", ingest.ErrUploadExpired, 408, web.CodeUploadExpired, 0},
		"title":       {"Accept", ingest.CheckLine("title", "a\x00b", 500), 422, web.CodeInvalidText, 0},
		"not known":   {"Accept", taskstate.ErrOutcomeUnknown, 503, web.CodeOutcomeUnknown, 0}, // the application keeps what a row may name
		"accept fell": {"Accept", errors.New("secret"), 500, web.CodeInternal, 0},
		"away":        {"Admit", fmt.Errorf("ping: %w", taskstate.ErrUnavailable), 503, web.CodeUnavailable, 0},
		"no folder":   {"Admit", ingest.ErrFolder, 503, web.CodeNoFolder, 0},
		"exhausted":   {"Receive", fmt.Errorf("create: %w", ingest.ErrNoResources), 503, web.CodeNoResources, 0},
		"key":         {"BeginKey", fmt.Errorf("read: %w", taskstate.ErrUnavailable), 503, web.CodeUnavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.svc.Fail(c.method, c.err)
			body := "x"
			if c.method == "BeginKey" {
				body = strings.Repeat("long\n", uploads.ClaimBytes/5) // a short request needs no claim
			}
			w := b.upload(ada, asyncPath, []string{"Idempotency-Key", "k"}, file("a.txt", body))
			p := b.refused(w, c.status, c.code)
			require.Equal(t, c.held, b.held())
			if c.method == "Admit" {
				require.Zero(t, b.svc.Received(), "the body was read")
			}
			require.NotContains(t, w.Body.String(), "secret")
			require.Contains(t, b.log.String(), c.err.Error())
			if c.status == 503 {
				require.NotEmpty(t, w.Header().Get("Retry-After"))
			}
			if name == "honest" {
				require.Equal(t, "90", w.Header().Get("Retry-After"))
				require.Equal(t, 90, p.RetryAfter)
			}
			b.svc.Fail(c.method, nil)
			require.Equal(t, http.StatusAccepted, b.upload(ada, asyncPath, []string{"Idempotency-Key", "k"}, file("a.txt", "x")).Code, "the key was not released")
		})
	}
}

// waitError is an error that names a wait.
type waitError struct {
	error
	after time.Duration
}

func (w waitError) Unwrap() error             { return w.error }
func (w waitError) RetryAfter() time.Duration { return w.after }

func TestFileNamesAreCleaned(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"../../etc/passwd": "passwd", `..\..\x.txt`: "x.txt", "/abs/name.pdf": "name.pdf", `C:\a\b.txt`: "b.txt",
		"a\x00b.txt": "ab.txt", "..": "upload", "": "upload", "/": "upload", "a\r\nb.txt": "ab.txt", "fdp\u202Eexe.txt": "fdpexe.txt",
		"\xff.txt": "\uFFFD.txt", "報告.pdf": "報告.pdf", strings.Repeat("n", 300) + ".pdf": strings.Repeat("n", 251) + ".pdf",
	} {
		require.Equal(t, want, uploads.CleanFileName(given), "%q", given)
	}
	b := newBench(t)
	require.Equal(t, "x.txt", b.accept(ada, `..\..\x.txt`, "x").FileName)
}

func TestPutDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.accept(ada, "a.txt", "one")
	path := "PUT /api/knowledge/documents/" + string(first.DocumentID)
	w := b.upload(ada, path, nil, file("a2.txt", "two"))
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	got := decode[wire.AcceptedTask](t, w)
	require.Equal(t, first.DocumentID, got.DocumentID)
	require.NotEqual(t, first.TaskID, got.TaskID)
	b.refused(b.upload(ada, path, nil, file("a", "3"), file("b", "4")), http.StatusUnprocessableEntity, web.CodeInvalidField)
	b.refused(b.upload(ada, path+"?knowledgeBase=x", nil, file("a", "3")), http.StatusBadRequest, web.CodeUnknownParameter)
	b.refused(b.upload(ada, path, []string{"If-Match", `"old"`}, file("a", "3")), http.StatusPreconditionFailed, web.CodePrecondition)
	tag := b.get(ada, "/api/knowledge/documents/"+string(first.DocumentID)).Header().Get("ETag")
	require.Equal(t, http.StatusAccepted, b.upload(ada, path, []string{"If-Match", tag}, file("a", "3")).Code)
	before := b.svc.Received()
	b.refused(b.upload(bob, path, nil, file("a", "3")), http.StatusNotFound, web.CodeDocumentNotFound)
	b.refused(b.upload(ada, "PUT /api/knowledge/documents/nonsense", nil, file("a", "3")), http.StatusNotFound, web.CodeDocumentNotFound)
	require.Equal(t, before, b.svc.Received(), "a foreign document's upload was read")
	require.Zero(t, b.held())
}

func TestUploadAndWait(t *testing.T) {
	t.Parallel()
	const path = "/api/knowledge/documents/upload"
	b := newBench(t)
	w := b.upload(ada, path+"?waitSeconds=0", nil, file("a.txt", "x"))
	require.Equal(t, http.StatusAccepted, w.Code)
	done := make(chan struct{})
	go func() {
		defer close(done)
		id := <-b.svc.watching
		b.move(id, taskstate.StatusRunning)
		b.move(id, taskstate.StatusSucceeded)
	}()
	w = b.upload(ada, path, nil, file("b.txt", "y"))
	<-done
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, taskstate.StatusSucceeded, decode[wire.AcceptedTask](t, w).Status)
	// A stop of the process ends the wait; the task is accepted all the same.
	go func() {
		<-b.svc.watching
		b.g.Drain()
	}()
	w = b.upload(ada, path+"?waitSeconds=120", nil, file("c.txt", "z"))
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	b.refused(b.upload(ada, path, nil, file("d.txt", "z")), http.StatusServiceUnavailable, web.CodeStopping)
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	now := time.Now()
	limited := func(c *Config, d *Deps) {
		c.UploadRateLimit, c.TrustedProxies = 2, nil
		d.Now = func() time.Time { return now } // what comes back while the test stands still is nobody's business
	}
	b := newBench(t, limited)
	b.accept(ada, "1", "1")
	b.accept(ada, "2", "2")
	w := b.upload(ada, asyncPath, nil, file("3", "3"))
	p := b.refused(w, http.StatusTooManyRequests, web.CodeRateLimited)
	require.Equal(t, 30, p.RetryAfter)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	// Another user behind the same address shares the address's limit, and a forged X-Forwarded-For changes nothing (A29).
	for i := range 3 {
		w := b.upload(bob, asyncPath, []string{"X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i)}, file("3", "3"))
		b.refused(w, http.StatusTooManyRequests, web.CodeRateLimited)
	}
	// A file too many in one request is refused for itself.
	b = newBench(t, limited)
	w = b.upload(ada, asyncPath, nil, file("1", "1"), file("2", "2"), file("3", "3"))
	require.Equal(t, http.StatusAccepted, w.Code)
	require.Contains(t, w.Body.String(), web.CodeRateLimited)
	// A trusted proxy tells addresses apart.
	b = newBench(t, func(c *Config, _ *Deps) { c.UploadRateLimit = 1; c.TrustedProxies = []string{"192.0.2.0/24"} })
	require.Equal(t, http.StatusAccepted, b.upload(ada, asyncPath, []string{"X-Forwarded-For", "203.0.113.1"}, file("1", "1")).Code)
	require.Equal(t, http.StatusAccepted, b.upload(bob, asyncPath, []string{"X-Forwarded-For", "203.0.113.2"}, file("1", "1")).Code)
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for ip, want := range map[string]string{
		"203.0.113.9": "203.0.113.9", "::ffff:203.0.113.9": "203.0.113.9", "2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64", "": "", "x": "x",
	} {
		require.Equal(t, want, web.Network(ip))
	}
}
