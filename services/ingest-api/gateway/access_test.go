package gateway

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/taskstate"
)

var update = flag.Bool("update", false, "write the golden files anew")

// needs names an access for the golden table.
func needs(a access) string {
	return [...]string{"nothing", "read", "write", "inspect", "operate", "metrics"}[a]
}

// walkers are the sorts of callers; the keys of reader and watcher have the scope read only.
func walkers() []string {
	return []string{"owner", "other", "anonymous", "garbage", "reader", "operator", "watcher"}
}

// object is what a route is called with.
type belongings struct{ task, document, base string }

// belonging makes an object of ada's in the state that the route wants.
func (b *bench) belonging(r route) belongings {
	b.t.Helper()
	task := b.accept(b.secrets["owner"], "a.txt", "some text of ada's, "+rand.Text()) // the same bytes would be a duplicate
	step := func(who, path string) {
		w := b.do(b.request(b.secrets[who], http.MethodPost, path, nil))
		require.Equal(b.t, http.StatusOK, w.Code, w.Body.String())
	}
	switch {
	case strings.HasSuffix(r.path, "/resume"):
		step("operator", "/internal/tasks/"+task.TaskID+"/suspend")
	case strings.HasSuffix(r.path, "/retry"), strings.HasSuffix(r.path, "/events"):
		step("owner", "/api/knowledge/tasks/"+task.TaskID+"/cancel")
	}
	return belongings{task: task.TaskID, document: *task.DocumentID, base: task.Document.KnowledgeBaseID}
}

// walk calls one route with an object.
func (b *bench) walk(r route, o belongings, who string) *httptest.ResponseRecorder {
	b.t.Helper()
	path := strings.NewReplacer(":taskId", o.task, ":documentId", o.document, ":base", o.base, ":keyId", o.task, ":messageId", o.task, ":eventId", o.task, ":letterId", o.task, ":topic", "orders", ":group", "g").Replace(r.path)
	secret := b.secrets[who]
	switch {
	case strings.Contains(path, "upload") || r.method == http.MethodPut:
		target := path
		if r.method == http.MethodPut {
			target = "PUT " + path
		} else if strings.HasSuffix(path, "upload") {
			target += "?waitSeconds=0"
		}
		return b.upload(secret, target, nil, file("b.txt", "other "+rand.Text()))
	case strings.HasSuffix(path, "search"):
		return b.send(secret, r.method, path, `{"query":"a"}`)
	case r.method == http.MethodPost && strings.HasSuffix(path, "keys"):
		return b.send(secret, r.method, path, `{"userId":"eve"}`)
	case r.method == http.MethodPost && strings.HasSuffix(path, "bases"):
		return b.send(secret, r.method, path, `{"name":"new `+rand.Text()+`"}`)
	case r.method == http.MethodDelete && strings.Contains(path, "/bases/"):
		path += "?cascade=true"
	}
	return b.do(b.request(secret, r.method, path, nil))
}

func TestAuthenticatorErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic YTpi", "ada", "Bearer  "} {
		r := b.request(nobody, http.MethodGet, "/api/knowledge/tasks", nil, "Authorization", header)
		b.refused(b.do(r), http.StatusUnauthorized, codeUnauthenticated)
	}
	r := b.request(nobody, http.MethodGet, "/api/knowledge/tasks", nil, "Authorization", "bearer ada")
	require.Equal(t, http.StatusOK, b.do(r).Code, "the scheme is not case-sensitive")
	b.people.err = fmt.Errorf("look up: %w: dial 10.0.0.1", taskstate.ErrUnavailable)
	w := b.get(ada, "/api/knowledge/tasks")
	b.refused(w, http.StatusServiceUnavailable, codeUnavailable)
	require.NotContains(t, w.Body.String(), "10.0.0.1")
	b.people.err = errors.New("boom")
	b.refused(b.get(ada, "/api/knowledge/tasks"), http.StatusInternalServerError, codeInternal)
}

func TestModeNoneIsTheLocalOperator(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config, d *Deps) { c.AuthMode, d.Auth = AuthNone, nil })
	require.Equal(t, http.StatusOK, b.get(nobody, "/internal/tasks/stats").Code)
	require.Equal(t, auth.Local().Scope(), b.svc.LastCaller().Scope)
	// A page that makes its own name point here is refused (DNS rebinding), probes are not.
	for host, want := range map[string]int{
		"localhost:8081": 200, "127.0.0.1": 200, "[::1]:8081": 200, "127.8.9.1:1": 200, "evil.example": 403, "10.0.0.1": 403, "": 403, "127.0.0.1.evil.example": 403,
	} {
		r := b.request(nobody, http.MethodGet, "/api/knowledge/tasks", nil)
		r.Host = host
		require.Equal(t, want, b.do(r).Code, host)
	}
	r := b.request(nobody, http.MethodGet, "/healthz", nil)
	r.Host = "10.0.0.1"
	require.Equal(t, http.StatusOK, b.do(r).Code)
}

// A32: a browser's cross-site change is refused, in any mode; programs are not browsers.
func TestCrossSiteChangesAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.accept(ada, "a.txt", "x").TaskID
	path := "/api/knowledge/tasks/" + id + "/cancel"
	b.refused(b.send(ada, http.MethodPost, path, "", "Sec-Fetch-Site", "cross-site"), http.StatusForbidden, codeCrossOrigin)
	b.refused(b.send(ada, http.MethodPost, path, "", "Origin", "https://evil.example"), http.StatusForbidden, codeCrossOrigin)
	require.Equal(t, http.StatusOK, b.send(ada, http.MethodPost, path, "", "Origin", "http://127.0.0.1:8081", "Sec-Fetch-Site", "same-origin").Code)
	require.Equal(t, http.StatusOK, b.get(ada, "/api/knowledge/tasks", "Sec-Fetch-Site", "cross-site").Code)
}

func TestMetricsAccess(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte("x 1\n"))
	})
	closed := newBench(t, func(_ *Config, d *Deps) { d.Metrics = page })
	open := newBench(t, func(c *Config, d *Deps) { d.Metrics, c.MetricsPublic = page, true })
	for _, path := range []string{"/metrics", "/actuator/prometheus"} {
		require.Equal(t, http.StatusUnauthorized, closed.get(nobody, path).Code)
		require.Equal(t, http.StatusForbidden, closed.get(ada, path).Code)
		require.Equal(t, "x 1\n", closed.get(operator, path+"?name[]=x").Body.String())
		require.Equal(t, http.StatusOK, open.get(nobody, path).Code)
	}
}
