package gateway

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/auth/token"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// calls listens on an address of this machine. callers lists who has called there.
func calls(t *testing.T) (addr string, callers func() []string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String(), func() (out []string) {
		var d net.Dialer
		mine, err := d.DialContext(t.Context(), "tcp4", l.Addr().String()) // the last in the row of those that wait
		require.NoError(t, err)
		defer func() { _ = mine.Close() }()
		for {
			c, err := l.Accept()
			require.NoError(t, err)
			from := c.RemoteAddr().String()
			require.NoError(t, c.Close())
			if from == mine.LocalAddr().String() {
				return out
			}
			out = append(out, from)
		}
	}
}

// A1–A4: no request makes a service call an address, whatever its scheme and however it is written. A parameter or a
// field for one is unknown on every route; in a title, a name or a text it is text.
func TestA01(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	host, callers := calls(t)
	_, port, err := net.SplitHostPort(host)
	require.NoError(t, err)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp4", host)
	require.NoError(t, err)
	require.Len(t, callers(), 1, "a call is seen")
	require.NoError(t, c.Close())
	addresses := []string{
		"http://" + host + "/latest/meta-data/", "https://" + host, "//" + host + "/x", "http://localhost:" + port, "http://2130706433:" + port,
		"http://0177.0.0.1:" + port, "http://[::ffff:7f00:1]:" + port, "http://a@" + host + `:80\@ok.example/`, "http://ok.example#@" + host,
		"file:///etc/passwd", "gopher://" + host + "/_x", "ftp://" + host + "/x", "dict://" + host + "/x", "redis://" + host,
	}
	before, parameter := s.hash(), regexp.MustCompile(`:\w+`)
	for _, r := range s.g.routes {
		if slices.Contains(r.Query, web.AnyParam) {
			continue
		}
		path := parameter.ReplaceAllString(r.Path, unknownID)
		for _, field := range []string{"url", "fileUrl", "callbackUrl"} {
			for _, a := range addresses {
				w := s.do(s.request(s.secrets["operator"], r.Method, path+"?"+field+"="+url.QueryEscape(a), nil))
				s.refused(w, http.StatusBadRequest, web.CodeUnknownParameter)
			}
		}
	}
	for _, a := range addresses {
		s.refused(s.upload(s.secrets["owner"], asyncPath, nil, part{"url", "", a}), http.StatusBadRequest, web.CodeUnknownParameter)
		body := string(web.Render(map[string]string{"name": "n", "query": "q", "url": a}))
		for _, path := range []string{"/api/knowledge/bases", "/api/knowledge/search"} {
			s.refused(s.send(s.secrets["owner"], http.MethodPost, path, body), http.StatusBadRequest, web.CodeBadJSON)
		}
	}
	require.Equal(t, before, s.hash())
	for _, a := range addresses {
		w := s.upload(s.secrets["owner"], asyncPath, nil, part{"title", "", a}, file("a.html", "<html><img src='"+a+"'><p>text "+rand.Text()))
		require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	}
	require.Empty(t, callers())
}

// A6: which service makes embeddings, which keeps vectors and which orders hits are settings of the operator. No request takes them.
func TestA06(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada, before := s.secrets["owner"], s.hash()
	for _, field := range []string{
		"embeddingBaseUrl", "embedding_base_url", "EMBEDDING_BASE_URL", "embeddingApiKey", "embeddingModel", "model", "chromaBaseUrl", "vectorStore", "collection",
		"rerankBaseUrl", "rerankModel",
	} {
		s.refused(s.upload(ada, asyncPath, nil, part{field, "", "http://127.0.0.1:1"}, file("a.txt", "x")), http.StatusBadRequest, web.CodeUnknownParameter)
		s.refused(s.upload(ada, asyncPath+"?"+field+"=x", nil, file("a.txt", "x")), http.StatusBadRequest, web.CodeUnknownParameter)
		for _, body := range []string{`{"name":"n","%s":"http://127.0.0.1:1"}`, `{"query":"q","%s":"http://127.0.0.1:1"}`} {
			path := map[bool]string{true: "/api/knowledge/bases", false: "/api/knowledge/search"}[strings.Contains(body, "name")]
			s.refused(s.send(ada, http.MethodPost, path, fmt.Sprintf(body, field)), http.StatusBadRequest, web.CodeBadJSON)
		}
	}
	require.Equal(t, before, s.hash())
}

// A8: another user's document answers as one that is not there, and storage is not asked for its file.
func TestA08(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.belonging(web.Route{})
	// Who touches a file now fails otherwise than with 404. The marker stays: without it every upload is refused from the
	// next look on, a second after the last one.
	stored, err := os.ReadDir(filepath.Join(s.dir, "uploads"))
	require.NoError(t, err)
	require.Greater(t, len(stored), 1)
	for _, e := range stored {
		if e.Name() != files.MarkerName {
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "uploads", e.Name())))
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
		for _, id := range []string{o.document, strings.ToUpper(o.document), unknownID} {
			r := s.request(s.secrets["other"], method, "/api/knowledge/documents/"+id, nil, "Content-Type", "multipart/form-data; boundary=b")
			s.refused(s.do(r), http.StatusNotFound, web.CodeDocumentNotFound)
		}
	}
	require.Equal(t, http.StatusOK, s.get(s.secrets["owner"], "/api/knowledge/documents/"+o.document).Code)
}

// A9: the same bytes as another user's file make a file and a document of one's own, in every way.
func TestA09(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	text := "the very same bytes " + rand.Text()
	mine, his := s.accept(s.secrets["owner"], "a.txt", text), s.accept(s.secrets["other"], "b.txt", text)
	require.False(t, his.Duplicate)
	require.NotEqual(t, mine.DocumentID, his.DocumentID)
	require.NotEqual(t, mine.TaskID, his.TaskID)
	var files, users int
	require.NoError(t, s.parts.Store.Reader().QueryRowContext(t.Context(),
		"SELECT COUNT(*), COUNT(DISTINCT user_id) FROM stored_file WHERE sha256 = ?", his.Document.SHA256).Scan(&files, &users))
	require.Equal(t, []int{2, 2}, []int{files, users})
	require.Equal(t, http.StatusNoContent, s.do(s.request(s.secrets["owner"], http.MethodDelete, "/api/knowledge/documents/"+string(mine.DocumentID), nil)).Code)
	require.Equal(t, http.StatusOK, s.get(s.secrets["other"], "/api/knowledge/documents/"+string(his.DocumentID)).Code)
}

// A10: no object of one's own can be made to name another user's file, document or base.
func TestA10(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.belonging(web.Route{})
	bob, before := s.secrets["other"], s.hash()
	for _, field := range []string{"documentId", "fileId", "filePath", "userId", "path", "taskId"} {
		s.refused(s.upload(bob, asyncPath, nil, part{field, "", o.document}, file("a.txt", "x")), http.StatusBadRequest, web.CodeUnknownParameter)
		s.refused(s.upload(bob, asyncPath+"?"+field+"="+o.document, nil, file("a.txt", "x")), http.StatusBadRequest, web.CodeUnknownParameter)
		s.refused(s.send(bob, http.MethodPost, "/api/knowledge/bases", fmt.Sprintf(`{"name":"n","%s":%q}`, field, o.base)), http.StatusBadRequest, web.CodeBadJSON)
	}
	s.refused(s.upload(bob, asyncPath, nil, part{"knowledgeBase", "", o.base}, file("a.txt", "x")), http.StatusNotFound, web.CodeBaseNotFound)
	s.refused(s.upload(bob, "PUT /api/knowledge/documents/"+o.document, nil, file("a.txt", "x")), http.StatusNotFound, web.CodeDocumentNotFound)
	s.refused(s.upload(s.secrets["operator"], "PUT /api/knowledge/documents/"+o.document, nil, file("a.txt", "x")), http.StatusNotFound, web.CodeDocumentNotFound)
	require.Equal(t, before, s.hash())
	// A name of one's own that is another's id stays a name, or is refused; it never is that base.
	require.GreaterOrEqual(t, s.send(bob, http.MethodPost, "/api/knowledge/bases", fmt.Sprintf(`{"name":%q}`, o.base)).Code, 400)
}

// injections are texts that ended up in the wrong place elsewhere.
func injections(o belongings) []string {
	out := []string{
		"' OR '1'='1", "' OR 1=1 --", "') OR ('1'='1", "x') OR (user_id='ada", "\" OR \"\"=\"", "1) OR (1=1", "%' OR user_id LIKE '%", "%", "_", "!", "!%",
		"\\", "\\'", "';DROP TABLE ingest_task;--", "' UNION SELECT * FROM api_key --", "/**/OR/**/1=1", "ada", "user_id", "*", "$1", "?", "@list", "(@rows:3)",
		"\x00", "a\x00b", "\u2019 OR 1=1", strings.Repeat("(", 200), strings.Repeat("'", 200), o.document, o.task, o.base, "some text of ada's",
		"createdAt; SELECT 1", "-updatedAt,(SELECT 1)", "DEAD') OR ('a'='a", "DEAD,QUEUED) OR (1=1", "2026-01-01T00:00:00Z' OR '1'='1", "9999999999999", "-1", "1e9",
	}
	for range 40 {
		out = append(out, strings.NewReplacer("A", "'", "B", ")", "C", " OR ", "D", "1=1", "E", "(").Replace(rand.Text()))
	}
	return out
}

// A11: whatever stands in a filter, a list holds its caller's rows only.
func TestA11(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.belonging(web.Route{})
	bob := s.secrets["other"]
	for _, r := range s.g.routes {
		if r.Method != http.MethodGet || r.Access != web.AccessRead || len(r.Query) == 0 || strings.Contains(r.Path, ":") {
			continue
		}
		for _, name := range r.Query {
			for _, text := range injections(o) {
				w := s.get(bob, r.Path+"?"+name+"="+url.QueryEscape(text))
				require.NotEqual(t, http.StatusInternalServerError, w.Code, "%s %s=%q: %s", r.Path, name, text, w.Body)
				if w.Code != http.StatusOK {
					continue
				}
				for _, id := range []string{o.task, o.document, o.base} {
					require.NotContains(t, w.Body.String(), id, "%s %s=%q", r.Path, name, text)
				}
			}
		}
	}
	for _, text := range injections(o) {
		w := s.send(bob, http.MethodPost, "/api/knowledge/search", string(web.Render(map[string]string{"query": "text", "knowledgeBase": text})))
		require.NotEqual(t, http.StatusInternalServerError, w.Code, text)
		require.NotContains(t, w.Body.String(), o.document)
	}
}

// A14: a base's name is data: it is no path, and no file or folder is ever named by it.
func TestA14(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada := s.secrets["owner"]
	for _, name := range []string{"../victim/x", "/tmp/p", "..", ".", "a/../../b", `..\..\x`, "C:\\x", "file:///etc/passwd", "a\u202eb", "%2e%2e%2f"} {
		w := s.send(ada, http.MethodPost, "/api/knowledge/bases", string(web.Render(map[string]string{"name": name})))
		require.Equal(t, http.StatusCreated, w.Code, "%q: %s", name, w.Body)
		v := decode[wire.Base](t, w)
		require.Equal(t, name, v.Name)
		require.Equal(t, "/api/knowledge/bases/"+v.KnowledgeBaseID, w.Header().Get("Location"))
		up := s.upload(ada, asyncPath, nil, part{"knowledgeBase", "", name}, file(name, "text "+rand.Text()))
		require.Equal(t, http.StatusAccepted, up.Code, up.Body.String())
	}
	uuid := regexp.MustCompile(`^[0-9a-f]{2}$|^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	root := filepath.Join(s.dir, "uploads")
	files := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if path != root && !d.IsDir() && d.Name() != ".timeline" { // the folder's own marker
			files++
			require.Regexp(t, uuid, d.Name())
		}
		return nil
	}))
	require.GreaterOrEqual(t, files, 10)
	outside, err := filepath.Glob(filepath.Join(s.dir, "*"))
	require.NoError(t, err)
	for _, path := range outside {
		require.Contains(t, []string{"a.db", "a.db-wal", "a.db-shm", "uploads", "vectors"}, filepath.Base(path))
	}
}

// from makes a request come from an address, with what a client says of itself.
func from(r *http.Request, address, forwarded string) *http.Request {
	r.RemoteAddr = address + ":40000"
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
		r.Header.Set("X-Real-Ip", forwarded)
		r.Header.Set("Forwarded", "for="+forwarded)
	}
	return r
}

// A29: who guesses keys is one caller, whatever addresses he invents; he gets 429. A neighbour with a good key goes on, and
// one who comes later with a good key does too; other addresses are free.
func TestA29(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	s := newSite(t, func(c *Config, d *Deps) {
		c.AuthFailLimit, c.AuthFailWindow = 5, 60
		d.Now = func() time.Time { return now }
	})
	guess := func(address, forwarded, secret string) *httptest.ResponseRecorder {
		return s.do(from(s.request(secret, http.MethodGet, "/api/knowledge/tasks", nil), address, forwarded))
	}
	require.Equal(t, http.StatusOK, guess("192.0.2.1", "", s.secrets["owner"]).Code)
	codes := map[int]int{}
	for i := range 50 {
		w := guess("192.0.2.1", fmt.Sprintf("198.51.100.%d", i), s.secrets["garbage"])
		if codes[w.Code]++; w.Code == http.StatusTooManyRequests {
			require.Equal(t, web.CodeLoginLimited, s.problem(w).Code)
			require.Equal(t, "12", w.Header().Get("Retry-After"))
		}
	}
	require.Equal(t, map[int]int{http.StatusUnauthorized: 5, http.StatusTooManyRequests: 45}, codes)
	require.Equal(t, http.StatusOK, guess("192.0.2.1", "", s.secrets["owner"]).Code, "a neighbour whose key was good")
	unseen, _, err := s.keys.Create(t.Context(), auth.NewKey{UserID: "carol", Role: taskstate.RoleUser})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, guess("192.0.2.1", "", unseen).Code, "a good key that was never seen here is let in too")
	require.Equal(t, http.StatusTooManyRequests, guess("192.0.2.1", "", auth.NewSecret()).Code)
	require.Equal(t, http.StatusOK, guess("192.0.2.2", "", unseen).Code)
	require.Equal(t, http.StatusUnauthorized, guess("192.0.2.1", "", nobody).Code, "no key is no guess")
	now = now.Add(13 * time.Second)
	require.Equal(t, http.StatusOK, guess("192.0.2.1", "", s.secrets["operator"]).Code, "one attempt came back")

	s.trail.Flush(t.Context())
	rows, err := s.trail.List(t.Context(), audit.Query{Action: audit.LoginFailed, Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1, "a flood is one row")
	require.Equal(t, "192.0.2.1", rows[0].Source.IP)
	require.Equal(t, 51, rows[0].Times)

	behind := newBench(t, func(c *Config, _ *Deps) {
		c.AuthFailLimit, c.AuthFailWindow, c.TrustedProxies = 2, 60, []string{"10.0.0.0/8"}
	})
	ask := func(peer, forwarded string) int {
		return behind.do(from(behind.request("x", http.MethodGet, "/api/knowledge/tasks", nil), peer, forwarded)).Code
	}
	for i := range 4 { // what a client writes in front of the proxy's entry counts for nothing
		require.Equal(t, map[bool]int{true: 401, false: 429}[i < 2], ask("10.1.1.1", fmt.Sprintf("203.0.113.%d, 192.0.2.9", i)))
	}
	require.Equal(t, http.StatusUnauthorized, ask("10.1.1.1", "192.0.2.10"), "another client of the proxy")
	require.Equal(t, http.StatusUnauthorized, ask("192.0.2.77", "192.0.2.9"), "a peer that is no proxy is itself")
}

// A30: forged tokens are 401 like any bad key, and good ones have exactly the rights that they name.
func TestA30(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	tokens, err := token.New(token.Config{Secret: []byte(secret), Issuer: "i", Audience: "millweir"}, nil)
	require.NoError(t, err)
	s := newSite(t, func(_ *Config, d *Deps) {
		keys, ok := d.Auth.(*auth.Keys)
		require.True(t, ok)
		d.Auth = token.Chain{Keys: keys, Tokens: tokens}
	})
	sign := func(change map[string]any) string {
		claims := map[string]any{"iss": "i", "aud": "millweir", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix(), "nbf": time.Now().Add(-time.Hour).Unix()}
		for k, v := range change {
			claims[k] = v
		}
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(secret)}, nil)
		require.NoError(t, err)
		signed, err := signer.Sign(web.Render(claims))
		require.NoError(t, err)
		text, err := signed.CompactSerialize()
		require.NoError(t, err)
		return text
	}
	ask := func(secret, path string) *httptest.ResponseRecorder { return s.get(secret, path) }
	const list, stats = "/api/knowledge/tasks", "/internal/tasks/stats"
	require.Equal(t, http.StatusOK, ask(sign(nil), list).Code)
	require.Equal(t, http.StatusForbidden, ask(sign(nil), stats).Code)
	require.Equal(t, http.StatusOK, ask(sign(map[string]any{"scope": "operator read"}), stats).Code)
	w := s.send(sign(map[string]any{"scope": "read"}), http.MethodPost, "/api/knowledge/bases", `{"name":"n"}`)
	require.Equal(t, web.CodeScope, s.refused(w, http.StatusForbidden, web.CodeScope).Code)
	good := sign(nil)
	parts := strings.Split(good, ".")
	for name, text := range map[string]string{
		"none":    "eyJhbGciOiJub25lIn0." + parts[1] + ".", // {"alg":"none"}
		"expired": sign(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), "early": sign(map[string]any{"nbf": time.Now().Add(time.Minute).Unix()}),
		"other audience": sign(map[string]any{"aud": "x"}), "other issuer": sign(map[string]any{"iss": "x"}),
		"unsigned": parts[0] + "." + parts[1] + ".", "exchanged": parts[0] + "." + strings.Split(sign(map[string]any{"sub": "bob"}), ".")[1] + "." + parts[2],
		"dots": strings.Repeat(".", 1<<20),
	} {
		p := s.refused(ask(text, list), http.StatusUnauthorized, web.CodeUnauthenticated)
		require.Equal(t, web.Kinds[web.CodeUnauthenticated].Message, p.Message, "%s: why is told to nobody", name)
	}
	s.trail.Flush(t.Context())
	rows, err := s.trail.List(t.Context(), audit.Query{Action: audit.LoginFailed, Limit: 10})
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	require.Contains(t, rows[0].Detail, "invalid API key: token: ", "but to who reads the audit")
}

// A31: a key of another user's is a key that nobody used; one's own with other bytes is refused.
func TestA31(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	key := []string{"Idempotency-Key", "order-1"}
	mine := decode[wire.AcceptedTask](t, s.upload(s.secrets["owner"], asyncPath, key, file("a.txt", "of ada")))
	for _, text := range []string{"of ada", "of bob"} {
		w := s.upload(s.secrets["other"], asyncPath, []string{"Idempotency-Key", "order-1"}, file("a.txt", text))
		if text == "of bob" {
			s.refused(w, http.StatusUnprocessableEntity, web.CodeKeyReused) // bob's own key by now
			continue
		}
		his := decode[wire.AcceptedTask](t, w)
		require.Equal(t, http.StatusAccepted, w.Code)
		require.Empty(t, w.Header().Get("Idempotency-Replayed"))
		require.NotEqual(t, mine.TaskID, his.TaskID)
	}
	again := s.upload(s.secrets["owner"], asyncPath, key, file("a.txt", "of ada"))
	require.Equal(t, "true", again.Header().Get("Idempotency-Replayed"))
	require.Equal(t, mine.TaskID, decode[wire.AcceptedTask](t, again).TaskID)
}
