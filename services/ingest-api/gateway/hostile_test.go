//go:build !race

// One request at a time is sent: nothing runs beside another that the race detector could see.

package gateway

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http/httpguts"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// hostile are values that nobody means, each a class of its own.
var hostile = map[string]string{
	"non-ASCII":         "\u00dcbersicht \u00e9",
	"emoji":             "\U0001f433",
	"NUL":               "a\x00b",
	"not UTF-8":         "\xff\xfe",
	"very long":         strings.Repeat("x", 5000),
	"long, two bytes":   strings.Repeat("\u00e9", 120),
	"quotes":            "'\"`",
	"percent":           "%",
	"underscore":        "_",
	"backslash":         "\\",
	"line end":          "a\nb",
	"override":          "a\u202eb",
	"lone surrogate":    "\xed\xa0\x80",
	"out of range":      "99999999999999999999999",
	"below range":       "-9223372036854775809",
	"empty":             "",
	"traversal":         "../../etc/passwd",
	"an id and a space": unknownID + " ",
	"an id and more":    unknownID + "\u00e9",
	"a time far off":    "294277-01-10T04:00:54.775807Z",
}

// inBodies are the values that fields and headers are tried with too.
var inBodies = []string{"non-ASCII", "NUL", "line end", "an id and more"}

// Every path and query parameter of every route with each of the hostile values, and every field of a JSON body or form and
// every header of ours with some, on every database: no answer is a fault of ours. The routes come from the gateway's own table.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		asked := 0
		for _, r := range s.g.routes {
			o := s.belonging(r)
			try := func(what, value string, w *httptest.ResponseRecorder) {
				asked++
				if w.Code >= 500 {
					t.Errorf("%s %s, %s is %.80q: %d %s", r.Method, r.Path, what, value, w.Code, w.Body)
				}
				spent := r.Method == http.MethodDelete || strings.HasSuffix(r.Path, "letterId/replay")
				if w.Code < 300 && spent && strings.Contains(r.Path, ":") {
					o = s.belonging(r)
				}
			}
			for name, value := range hostile {
				for _, segment := range strings.Split(r.Path, "/") {
					if param, ok := strings.CutPrefix(segment, ":"); ok {
						path := strings.Replace(r.Path, segment, url.PathEscape(value), 1)
						try(param, value, s.ask(r, o.at(web.Route{Path: path}), nil))
					}
				}
				for _, param := range r.Query {
					try(param, value, s.ask(r, o.at(r), url.Values{param: {value}}))
				}
				if slices.Contains(inBodies, name) {
					s.tryBodies(r, func() belongings { return o }, value, try)
				}
			}
		}
		t.Logf("%d requests", asked)
		require.Greater(t, asked, 2000)
	})
}

// fields are those of all JSON bodies; a route refuses the ones that it does not know.
var fields = []string{
	"query", "knowledgeBase", "name", "userId", "role", "topic", "cause", "task", "error", "reason", "cursor", "source", "group", "key", "to", "after",
	"failedAfter", "time",
}

// headers are those that routes read.
var headers = []string{"Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Traceparent", "X-Request-Id", "Content-Type"}

// tryBodies puts a value into each field and header of a route.
func (s *site) tryBodies(r web.Route, object func() belongings, value string, try func(what, value string, w *httptest.ResponseRecorder)) {
	upload := r.Method == http.MethodPut || strings.Contains(r.Path, "/upload")
	queues := strings.HasPrefix(r.Path, "/internal/mq") || strings.HasPrefix(r.Path, "/internal/dlq") // which read no header
	for _, name := range headers {
		if !queues && httpguts.ValidHeaderFieldValue(value) && len(value) < 4000 && upload == (name == "Idempotency-Key") {
			try(name, value, s.ask(r, object().at(r), nil, name, value))
		}
	}
	switch {
	case upload:
		for _, name := range []string{"title", "knowledgeBase", "force"} {
			body, kind := form(s.t, part{name, "", value}, file("a.txt", rand.Text()))
			target := object().at(r)
			if slices.Contains(r.Query, "waitSeconds") {
				target += "?waitSeconds=0"
			}
			try("field "+name, value, s.plain(r, target, body, "Content-Type", kind))
		}
	case r.Method == http.MethodPost:
		for _, name := range fields {
			body := map[string]any{}
			if text := bodies[r.Method+" "+r.Path]; text != "" {
				require.NoError(s.t, json.Unmarshal([]byte(text), &body))
			}
			body[name] = value
			try("field "+name, value, s.plain(r, object().at(r), bytes.NewReader(web.Render(body)), "Content-Type", "application/json"))
		}
	}
}

// plain sends a request without comparing the answer with the description, which other tests do.
func (s *site) plain(r web.Route, target string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.g.ServeHTTP(w, s.request(s.callerOf(r), r.Method, target, body, headers...))
	return w
}

// callerOf is who may use a route.
func (s *site) callerOf(r web.Route) string {
	if r.Access.Operator() {
		return s.secrets["operator"]
	}
	return s.secrets["owner"]
}

// ask sends a request that is whole but for what the caller has put into it.
func (s *site) ask(r web.Route, path string, query url.Values, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	if slices.Contains(r.Query, "waitSeconds") && !query.Has("waitSeconds") {
		query = url.Values{"waitSeconds": {"0"}, firstOf(query): query[firstOf(query)]}
	}
	if query.Has("") {
		query.Del("")
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if r.Method == http.MethodPut || strings.Contains(r.Path, "/upload") {
		body, kind := form(s.t, file("a.txt", rand.Text()))
		return s.plain(r, path, body, append([]string{"Content-Type", kind}, headers...)...)
	}
	text := bodies[r.Method+" "+r.Path]
	if text != "" {
		headers = append([]string{"Content-Type", "application/json"}, headers...)
	}
	return s.plain(r, path, strings.NewReader(text), headers...)
}

// firstOf is the one name of a query; empty: there is none.
func firstOf(query url.Values) string {
	for name := range query {
		return name
	}
	return ""
}

// What was made is found at an address that works for the caller: behind a proxy that takes a path away, with that path before it.
func TestLocationsBehindAPrefix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ trusted, said, want string }{
		{"192.0.2.1", "/docs/mill", "/docs/mill"}, {"192.0.2.0/24", "//evil.example", ""}, {"192.0.2.7", "/docs/mill", ""},
	} {
		s := newSite(t, func(conf *Config, _ *Deps) { conf.TrustedProxies = []string{c.trusted} })
		w := s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/bases", `{"name":"herons"}`, "X-Forwarded-Prefix", c.said)
		made := w.Header().Values("Location")
		for _, r := range s.g.routes {
			if r.Method == http.MethodPost {
				made = append(made, s.ask(r, s.belonging(r).at(r), url.Values{}, "X-Forwarded-Prefix", c.said).Header().Values("Location")...)
			}
		}
		kinds := map[string]bool{}
		for _, at := range made {
			require.Regexp(t, "^"+c.want+"/(api|internal)/", at)
			kinds[path.Dir(at)] = true
		}
		require.Len(t, kinds, 5, "tasks, bases, workflows, bulk operations, checks: %v", made)
	}
}
