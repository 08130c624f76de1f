package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const unknownID = "01890000-0000-7000-8000-000000000000"

func TestHostileFiles(t *testing.T) {
	t.Parallel()
	p, c := startDev(t)
	loop := "%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 9999>>endobj\n" +
		"3 0 obj<</Type/Pages/Parent 2 0 R/Kids[2 0 R]/Count 9999>>endobj\ntrailer<</Size 4/Root 1 0 R>>\nstartxref\n0\n%%EOF"
	limit := []string{"LIMIT_EXCEEDED"}
	for _, h := range []struct {
		sample
		content []byte
	}{
		{sample{File: "bomb.docx", Codes: limit, AtUpload: true}, docx(t, repeated("<w:p/>", 10_000_000))},
		{sample{File: "entries.docx", Codes: limit, AtUpload: true}, manyEntries(t)},
		{sample{File: "password.docx", Codes: []string{"ENCRYPTED"}, AtUpload: true}, encryptedDOCX()},
		{sample{File: "deep.docx", Codes: limit}, docx(t, strings.NewReader(strings.Repeat("<w:sdt>", 600)+strings.Repeat("</w:sdt>", 600)))},
		{sample{File: "loop.pdf", Codes: []string{"CORRUPT"}}, []byte(loop)},
		{sample{File: "array.pdf", Either: true}, onePage("/X "+strings.Repeat("[", 300_000)+strings.Repeat("]", 300_000), "")},
		{sample{File: "text.pdf", Either: true}, onePage("", "BT /F1 1 Tf "+strings.Repeat("(aaaaaaaaaaaaaaaaaaaaaaaa) Tj ", 30_000)+"ET")},
		{sample{File: "deep.html", Either: true}, []byte(strings.Repeat("<div>", 60_000) + "DEEPTEXT")},
		{sample{File: "binary.txt", Codes: []string{"UNSUPPORTED_TYPE"}, AtUpload: true}, bytes.Repeat([]byte{0, 1, 2, 0xff, 0xfe, 7}, 500)},
		{sample{File: "report.pdf", Codes: []string{"UNSUPPORTED_TYPE"}, AtUpload: true}, []byte("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 200))},
	} {
		t.Run(h.File, func(t *testing.T) {
			c := c.in(t)
			requireOutcome(t, c, h.sample, h.content)
			c.ingested("after "+h.File+".txt", []byte("The upload after "+h.File+" works."))
		})
	}
	require.Equal(t, http.StatusOK, c.get("/healthz").status)
	if memoryFactor == 1 {
		require.Less(t, p.peakKB(), 250<<10, "readers are children: the bombs cost this process nothing")
	}
}

func TestTooLargeUploadsAreRefusedWithoutBuffering(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	p, c := startDev(t, fmt.Sprintf("UPLOAD_MAX_BYTES=%d", most), "UPLOAD_MAX_REQUEST_BYTES=0")
	c.ingested("before.txt", []byte("The first upload works."))
	before := p.peakKB()

	head := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"big.txt\"\r\n\r\n"
	endless := io.MultiReader(strings.NewReader(head), repeated("two gigabytes of text\n", 100_000_000))
	a := c.do(http.MethodPost, documents+"/upload-async", endless, "Content-Type", "multipart/form-data; boundary=b")
	problem := a.refused(t, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
	require.Contains(t, problem.Message, fmt.Sprint(most))
	require.Contains(t, problem.Message, "big.txt")
	require.Less(t, p.peakKB()-before, 48<<10*memoryFactor/4+(16<<10), "the file went to disk, not into memory")
	left, err := filepath.Glob(filepath.Join(p.cmd.Args[2], "uploads", "tmp", "*"))
	require.NoError(t, err)
	require.Empty(t, left)

	requireDeclaredRefused(t, c, "")             // the client sends on until it is answered
	requireDeclaredRefused(t, c, "100-continue") // the client asks before it sends
	c.ingested("after.txt", []byte("The upload after it works, too."))
}

// requireDeclaredRefused announces two gigabytes.
func requireDeclaredRefused(t *testing.T, c *client, expect string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+documents+"/upload-async", repeated("x", 2<<30))
	require.NoError(t, err)
	req.ContentLength = 2 << 30
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	if expect != "" {
		req.Header.Set("Expect", expect)
	}
	res, err := c.http.Do(req)
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	answer{res.StatusCode, res.Header, b}.refused(t, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
}

func TestBadRequestsAreNamed(t *testing.T) {
	t.Parallel()
	_, c := startDev(t)
	text := []byte("A text that nobody needs.")
	plain := func(body string) answer {
		return c.do(http.MethodPost, documents+"/upload-async", strings.NewReader(body), "Content-Type", "multipart/form-data; boundary=b")
	}
	search := func(body string) answer { return c.json(http.MethodPost, "/api/knowledge/search", body) }
	for _, x := range []struct {
		name   string
		answer answer
		status int
		code   string
		says   string // in the message
	}{
		{"empty file", c.send("empty.txt", nil), 422, "EMPTY_FILE", "empty"},
		{"no file part", plain("--b\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nx\r\n--b--\r\n"), 400, "FILE_REQUIRED", "file"},
		{"cut off", plain("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nabc"), 400, "INCOMPLETE_BODY", "complete"},
		{"NUL in a file name", plain("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\x00b.txt\"\r\n\r\nabc\r\n--b--\r\n"), 400, "BAD_MULTIPART", "control characters"},
		{"no form", c.json(http.MethodPost, documents+"/upload-async", "{}"), 415, "UNSUPPORTED_MEDIA_TYPE", ""},
		{"long title", c.send("a.txt", text, "title", strings.Repeat("t", 10_000)), 422, "FIELD_TOO_LONG", "title has 10000 characters, allowed are 500"},
		{"title in Latin-1", c.send("a.txt", text, "title", "R\xe9sum\xe9"), 422, "INVALID_TEXT", "title is not valid UTF-8"},
		{"title of two lines", c.send("a.txt", text, "title", "one\ntwo"), 422, "INVALID_TEXT", "title"},
		{"NUL in a base's name", c.send("a.txt", text, "knowledgeBase", "a\x00b"), 422, "INVALID_TEXT", "knowledgeBase"},
		{"unknown base", c.send("a.txt", text, "knowledgeBase", "nowhere"), 404, "KNOWLEDGE_BASE_NOT_FOUND", ""},
		{"unknown form field", c.send("a.txt", text, "colour", "red"), 400, "UNKNOWN_PARAMETER", "colour"},
		{"bad force", c.send("a.txt", text, "force", "perhaps"), 422, "INVALID_FIELD", "force"},
		{"bad key", c.sendWith([]string{"Idempotency-Key", strings.Repeat("k", 200)}, "a.txt", text), 400, "IDEMPOTENCY_KEY_INVALID", ""},
		{"bad JSON", search(`{"query":`), 400, "BAD_JSON", ""},
		{"unknown JSON field", search(`{"query":"x","colour":"red"}`), 400, "BAD_JSON", "colour"},
		{"JSON of another kind", search(`{"query":7}`), 400, "BAD_JSON", "query"},
		{"JSON in Latin-1", search("{\"query\":\"\xe9\"}"), 400, "BAD_JSON", "UTF-8"},
		{"empty query", search(`{"query":" "}`), 422, "INVALID_FIELD", "query"},
		{"topK", search(`{"query":"x","topK":51}`), 422, "INVALID_FIELD", "topK is 51, allowed is 1 to 50"},
		{"unknown parameter", c.get(tasks + "?colour=red"), 400, "UNKNOWN_PARAMETER", "colour"},
		{"bad status", c.get(tasks + "?status=LOST"), 400, "INVALID_PARAMETER", "LOST"},
		{"bad cursor", c.get(documents + "?cursor=xyz"), 400, "BAD_CURSOR", ""},
		{"unknown task", c.get(tasks + "/" + unknownID), 404, "TASK_NOT_FOUND", ""},
		{"no id at all", c.get(tasks + "/%00..%2f"), 404, "TASK_NOT_FOUND", ""},
		{"unknown document", c.get(documents + "/" + unknownID), 404, "DOCUMENT_NOT_FOUND", ""},
		{"unknown address", c.get("/api/nothing"), 404, "NOT_FOUND", ""},
		{"wrong method", c.do(http.MethodPatch, tasks, nil), 405, "METHOD_NOT_ALLOWED", "PATCH"},
		{"foreign host", c.do(http.MethodGet, "/healthzz", nil), 404, "NOT_FOUND", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			p := x.answer.refused(t, x.status, x.code)
			require.Contains(t, p.Message, x.says)
		})
	}
	var all page[task]
	c.get(tasks).into(t, http.StatusOK, &all)
	require.Empty(t, all.Items, "nothing of all that became a task")
	c.ingested("good.txt", text)
}

func TestFileNamesAreData(t *testing.T) {
	t.Parallel()
	p, c := startDev(t)
	for given, shown := range map[string]string{
		"../../../etc/passwd.txt":        "passwd.txt",
		`C:\Users\anna\notes.txt`:        "notes.txt",
		"right\u202eto-left.txt":         "rightto-left.txt",
		"..":                             "upload",
		strings.Repeat("n", 400) + ".md": strings.Repeat("n", 252) + ".md",
	} {
		body := fmt.Sprintf("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\nA file called %x.\r\n--b--\r\n",
			strings.ReplaceAll(given, `\`, `\\`), given)
		var v task
		c.do(http.MethodPost, documents+"/upload-async", strings.NewReader(body), "Content-Type", "multipart/form-data; boundary=b").into(t, 202, &v)
		require.Equal(t, shown, v.FileName)
		require.Equal(t, "SUCCEEDED", c.ended(v.TaskID).Status)
	}
	named, err := filepath.Glob(filepath.Join(p.cmd.Args[2], "uploads", "*", "*passwd*"))
	require.NoError(t, err)
	require.Empty(t, named)
}

func TestBadSettingsAreNamedAtTheStart(t *testing.T) {
	t.Parallel()
	for setting, says := range map[string]string{
		"INGEST_MAX_CRASHES=1":             "INGEST_MAX_CRASHES",
		"UPLOAD_MAX_BYTES=lots":            "UPLOAD_MAX_BYTES",
		"AUTH_MODE=maybe":                  "none|keys",
		"EXTRACT_MEMORY_MB=1":              "128..4096",
		"CHUNK_MODE=pages":                 "tokens, chars",
		"DATABASE_URL=oracle://h/d":        "DATABASE_URL",
		"REDIS_URL=http://user:secret@h:1": "REDIS_URL",
		"INGEST_STAGE_STALL_MS=embed=-5":   "INGEST_STAGE_STALL_MS",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			code, out := run(t, "dev", []string{setting}, "--data", t.TempDir(), "--addr", "127.0.0.1:0")
			require.Equal(t, 2, code, out)
			require.Contains(t, out, says)
			require.NotContains(t, out, "secret")
			require.NotContains(t, out, "goroutine")
		})
	}
	// Nobody has to prove who he is: only where nobody else can come from.
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "127.0.0.1.example.com:0"} {
		code, out := run(t, "dev", []string{"AUTH_MODE=none"}, "--data", t.TempDir(), "--addr", addr)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, "set AUTH_MODE=keys", addr)
	}
	for _, setting := range []string{"JWT_SECRET=secret-too-short", "JWKS_URL=http://id.example.com/jwks"} {
		code, out := run(t, "dev", []string{setting, "AUTH_MODE=keys"}, "--data", t.TempDir(), "--addr", "127.0.0.1:0")
		require.Equal(t, 2, code, out)
		for _, name := range []string{strings.Split(setting, "=")[0], "JWT_ISSUER", "JWT_AUDIENCE"} {
			require.Contains(t, out, name)
		}
		require.NotContains(t, out, "secret-too-short")
	}
	code, out := run(t, "dev", []string{"INGEST_MAX_CRASHS=5", "INGEST_MAX_CRASHES=1"}, "--data", t.TempDir())
	require.Equal(t, 2, code)
	require.Contains(t, out, "INGEST_MAX_CRASHS", "a misspelt name is told")
}
