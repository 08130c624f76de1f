package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// meteredListener counts what is read from its connections.
type meteredListener struct {
	net.Listener
	read atomic.Int64
}

type meteredConn struct {
	net.Conn
	read *atomic.Int64
}

func (l *meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return meteredConn{c, &l.read}, err
}

func (c meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// metered serves a site on a real address and returns it with the meter of what is read there.
func metered(t *testing.T, s *site) (string, *meteredListener) {
	t.Helper()
	server, err := NewServer(t.Context(), s.g.cfg, s.g.deps2())
	require.NoError(t, err)
	meter := &meteredListener{Listener: server.listener}
	server.listener = meter
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	return server.Addr(), meter
}

// flood sends a head and then as much of a body as the other side takes, up to limit; it returns the status of the answer.
func flood(t *testing.T, addr, head string, limit int64) int {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, head)
	require.NoError(t, err)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for n := int64(0); n < limit; n += int64(len(chunk)) {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_ = res.Body.Close()
	_ = conn.Close()
	<-sent
	return res.StatusCode
}

// A33: an upload of 10 GB by somebody who may not send it is answered after at most 64 KiB of it were read.
func TestA33(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config, _ *Deps) { c.UploadMaxBytes, c.UploadMaxRequestBytes = 20<<30, 20<<30 })
	o := s.belonging(web.Route{})
	addr, meter := metered(t, s)
	const size = 10 << 30
	for name, c := range map[string]struct {
		line, secret string
		status       int
	}{
		"anonymous":        {"POST " + asyncPath, nobody, http.StatusUnauthorized},
		"unknown key":      {"POST " + asyncPath, s.secrets["garbage"], http.StatusUnauthorized},
		"not a key":        {"POST " + asyncPath, "x", http.StatusUnauthorized},
		"no scope":         {"POST " + asyncPath, s.secrets["reader"], http.StatusForbidden},
		"foreign document": {"PUT /api/knowledge/documents/" + o.document, s.secrets["other"], http.StatusNotFound},
		"not an operator":  {"POST /internal/keys", s.secrets["owner"], http.StatusForbidden},
		"no such address":  {"POST /api/knowledge/nothing", nobody, http.StatusNotFound},
	} {
		before := meter.read.Load()
		head := c.line + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: " + fmt.Sprint(int64(size)) + "\r\n"
		if c.secret != nobody {
			head += "Authorization: Bearer " + c.secret + "\r\n"
		}
		require.Equal(t, c.status, flood(t, addr, head+"\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n", size), name)
		read := meter.read.Load() - before
		require.LessOrEqual(t, read, int64(64<<10), name)
		t.Logf("%s: %d bytes read", name, read)
	}
}

// A25: a form of very many parts, or a part of very many headers, ends at its bound and not in memory.
func TestA25(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	addr, meter := metered(t, s)
	const head = "--b\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nx\r\n"
	many := map[string]struct {
		body io.Reader
		code string
		read int64
	}{
		"parts":        {strings.NewReader(strings.Repeat(head, 100_000) + "--b--\r\n"), web.CodeInvalidParameter, 1 << 20},
		"headers":      {strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n" + strings.Repeat("X-A: b\r\n", 100_000) + "\r\nx\r\n--b--\r\n"), web.CodeBadMultipart, 1 << 20},
		"one header":   {strings.NewReader("--b\r\nX-A: " + strings.Repeat("b", 10<<20) + "\r\n\r\nx\r\n--b--\r\n"), web.CodeBadMultipart, 1 << 20},
		"empty parts":  {strings.NewReader(strings.Repeat("--b\r\n\r\n\r\n", 100_000) + "--b--\r\n"), "", 1 << 20},
		"no boundary":  {strings.NewReader(strings.Repeat("x", 10<<20)), web.CodeBadMultipart, 10<<20 + 64<<10}, // a preamble may be long; the request's limit ends it
		"only dashes":  {strings.NewReader(strings.Repeat("-", 3<<20)), web.CodeBadMultipart, 3<<20 + 64<<10},
		"nested forms": {strings.NewReader("--b\r\nContent-Type: multipart/mixed; boundary=c\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n" + strings.Repeat("--c\r\n\r\n", 10_000) + "--b--\r\n"), "", 1 << 20},
	}
	before := s.hash()
	for name, c := range many {
		read := meter.read.Load()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+asyncPath, struct{ io.Reader }{c.body}) // of no announced length
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+s.secrets["owner"])
		req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		client := &http.Client{Transport: &http.Transport{}}
		res, err := client.Do(req)
		if err == nil { // else the connection was cut under the writing client, which is as good
			var p wire.Problem
			require.NoError(t, json.NewDecoder(res.Body).Decode(&p))
			_ = res.Body.Close()
			require.Contains(t, []int{400, 413, 415, 422}, res.StatusCode, name)
			if c.code != "" {
				require.Contains(t, []string{c.code, web.CodeTooLarge, web.CodeIncompleteBody}, p.Code, name)
			}
		}
		client.CloseIdleConnections()
		require.LessOrEqual(t, meter.read.Load()-read, c.read, name)
	}
	require.Equal(t, before, s.hash())
}

// A26: what a file is says its content; a program called report.pdf is not taken.
func TestA26(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	exe := "MZ\x90\x00\x03\x00\x00\x00\x04\x00\x00\x00\xff\xff\x00\x00\xb8" + strings.Repeat("\x00", 200) + "This program cannot be run in DOS mode.\r\r\n$"
	elf := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 200)
	before := s.hash()
	for _, body := range []string{exe, elf} {
		for _, name := range []string{"report.pdf", "report.txt", "report.md", "report.docx", "report", "report.pdf.exe"} {
			form := &bytes.Buffer{}
			fmt.Fprintf(form, "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=%q\r\nContent-Type: application/pdf\r\n\r\n%s\r\n--b--\r\n", name, body)
			w := s.do(s.request(s.secrets["owner"], http.MethodPost, asyncPath, form, "Content-Type", "multipart/form-data; boundary=b"))
			require.Equal(t, http.StatusUnsupportedMediaType, w.Code, "%s: %s", name, w.Body)
		}
	}
	require.Equal(t, before, s.hash())
}

// A27: what users wrote comes back as JSON that no browser takes for a page, and the one page has no place for it.
func TestA27(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const evil = `<script>alert(1)</script><img src=x onerror=alert(1)>"'`
	ada := s.secrets["owner"]
	up := s.upload(ada, asyncPath+"?title="+url.QueryEscape(evil), nil, file(evil+".md", "# "+evil+"\n"+rand.Text()))
	require.Equal(t, http.StatusAccepted, up.Code, up.Body.String())
	task := decode[wire.AcceptedTask](t, up)
	answers := []string{
		"/api/knowledge/documents/" + string(task.DocumentID), "/api/knowledge/documents?q=" + url.QueryEscape("<script>"), "/api/knowledge/tasks/" + task.TaskID,
		"/api/knowledge/tasks/" + task.TaskID + "/explain", "/api/knowledge/bases/" + url.PathEscape(evil), "/" + url.PathEscape(evil),
		"/api/knowledge/tasks?sort=" + url.QueryEscape(evil), "/api/knowledge/tasks?" + url.QueryEscape(evil) + "=1",
	}
	for _, path := range answers {
		w := s.get(ada, path)
		require.Regexp(t, `^application/(problem\+)?json$`, w.Header().Get("Content-Type"), path)
		require.NotContains(t, w.Body.String(), "<script", path)
		require.NotContains(t, w.Body.String(), "<img", path)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	}
	require.Contains(t, s.get(ada, answers[0]).Body.String(), `script\u003e`, "it is there, as text")
	page := s.get(nobody, "/docs?"+url.QueryEscape(evil))
	policy := page.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.Contains(t, policy, "frame-ancestors 'none'")
	require.NotContains(t, policy, "unsafe")
	require.NotContains(t, policy, "script-src")
	require.NotContains(t, page.Body.String(), "<script")
	require.NotContains(t, page.Body.String(), "onerror")
}

// A28: a file's name is in no header of an answer but that of the file itself, where it is one value, however it is made.
func TestA28(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, name := range []string{
		`a"; filename*=UTF-8''evil.txt`, "a\\r\\nSet-Cookie: x=1.txt", "a;b=c.txt", "ä\u202etxt.exe.txt", "%0d%0aLocation: http://evil.txt", "=?utf-8?Q?x?=.txt",
	} {
		w := s.upload(s.secrets["owner"], asyncPath, nil, file(name, "text "+rand.Text()))
		require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
		v := decode[wire.AcceptedTask](t, w)
		require.Equal(t, "/api/knowledge/tasks/"+v.TaskID, w.Header().Get("Location"))
		for _, path := range []string{"/api/knowledge/documents/" + string(v.DocumentID), "/api/knowledge/tasks/" + v.TaskID} {
			w := s.get(s.secrets["owner"], path)
			require.Empty(t, w.Header().Get("Content-Disposition"))
			require.Empty(t, w.Header().Get("Set-Cookie"))
		}
		document := decode[wire.Document](t, s.get(s.secrets["owner"], "/api/knowledge/documents/"+string(v.DocumentID)))
		w = s.get(s.secrets["owner"], "/api/knowledge/documents/"+string(v.DocumentID)+"/file")
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		require.Empty(t, w.Header().Get("Set-Cookie"))
		require.NotContains(t, w.Header().Get("Content-Disposition"), "\u202e")
		kind, said, err := mime.ParseMediaType(w.Header().Get("Content-Disposition"))
		require.NoError(t, err)
		require.Equal(t, "attachment", kind)
		require.Equal(t, map[string]string{"filename": document.FileName}, said)
	}
	for header, want := range map[string]int{ // real line ends never reach a name
		"form-data; name=\"file\"; filename=\"a\r\nSet-Cookie: x=1\r\n.txt\"": 400,
		"form-data; name=\"file\"; filename=\"a\x00.txt\"":                    400,
	} {
		body := "--b\r\nContent-Disposition: " + header + "\r\n\r\ntext\r\n--b--\r\n"
		w := s.do(s.request(s.secrets["owner"], http.MethodPost, asyncPath, strings.NewReader(body), "Content-Type", "multipart/form-data; boundary=b"))
		require.Equal(t, want, w.Code, w.Body.String())
		require.Empty(t, w.Header().Get("Set-Cookie"))
	}
}

// A34: nothing that a caller sends begins a line of the log or reaches a terminal as a control code.
func TestA34(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const evil = "x\r\n{\"level\":\"ERROR\",\"msg\":\"forged\"}\x1b[2J\u202e"
	escaped := url.PathEscape(evil)
	for _, path := range []string{"/" + escaped, "/api/knowledge/tasks/" + escaped, "/api/knowledge/bases/" + escaped, "/api/knowledge/tasks?q=" + url.QueryEscape(evil), "/api/knowledge/tasks?" + url.QueryEscape(evil) + "=1"} {
		r := b.request(ada, http.MethodGet, path, nil)
		for _, name := range []string{"User-Agent", "X-Request-Id", "X-Forwarded-For", "Traceparent", "Referer", "If-None-Match", "Last-Event-Id"} {
			r.Header.Set(name, evil)
		}
		w := b.do(r)
		require.NotContains(t, w.Body.String(), "\x1b")
	}
	b.do(b.request(evil, http.MethodGet, "/api/knowledge/tasks", nil))
	b.upload(ada, asyncPath, nil, part{"title", "", evil}, file(evil, "x"))
	b.upload(ada, asyncPath, []string{"Idempotency-Key", evil}, file("a.txt", "x"))
	b.send(operator, http.MethodPost, "/internal/keys", string(web.Render(map[string]string{"userId": evil})))
	text := strings.TrimSpace(b.log.String())
	require.NotContains(t, text, "\x1b")
	lines := strings.Split(text, "\n")
	require.Greater(t, len(lines), 8)
	for _, line := range lines {
		var entry struct{ Level, Msg string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		require.NotEqual(t, "forged", entry.Msg)
	}
}

// A35: trace headers of any size end at the header's bound; what of them is read is one traceparent of 55 bytes.
func TestA35(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	addr, meter := metered(t, s)
	for name, status := range map[string]int{"Baggage": 431, "Traceparent": 431, "Tracestate": 431, "X-Anything": 431} {
		before := meter.read.Load()
		got := flood(t, addr, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"+name+": ", 64<<20)
		require.Equal(t, status, got, name)
		require.LessOrEqual(t, meter.read.Load()-before, int64(64<<10), name)
	}
	b := newBench(t)
	good := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, header := range []string{strings.Repeat("0", 8000), good + "-" + strings.Repeat("f", 8000), strings.Repeat(good+",", 100)} {
		w := b.get(ada, "/api/knowledge/tasks", "Traceparent", header, "Tracestate", strings.Repeat("a=b,", 2000), "Baggage", strings.Repeat("k=v,", 2000))
		require.Equal(t, http.StatusOK, w.Code)
		require.LessOrEqual(t, len(b.svc.LastCaller().TraceParent), len(good))
	}
}

// A36: no value is ever so large that its length could wrap: bodies end at their bound, and queries carry parameters apart from their text.
func TestA36(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	addr, meter := metered(t, s)
	for line, secret := range map[string]string{
		"POST /api/knowledge/search": s.secrets["owner"], "POST /api/knowledge/bases": s.secrets["owner"], "POST /internal/keys": s.secrets["operator"],
	} {
		before := meter.read.Load()
		head := line + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + secret + "\r\nContent-Type: application/json\r\nContent-Length: 4294967396\r\n\r\n{\"query\":\""
		require.Equal(t, http.StatusRequestEntityTooLarge, flood(t, addr, head, 4<<30), line)
		require.LessOrEqual(t, meter.read.Load()-before, int64(2<<20), line)
	}
	for _, text := range []string{"4294967296", "-4294967296", "18446744073709551616", strings.Repeat("9", 10_000)} {
		w := s.get(s.secrets["owner"], "/api/knowledge/tasks?limit="+text)
		s.refused(w, http.StatusBadRequest, web.CodeInvalidParameter)
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "pkg", "sqldb", "postgres", "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NotContains(t, string(text), "SimpleProtocol", f)
		require.NotContains(t, string(text), "simple_protocol", f)
	}
}
