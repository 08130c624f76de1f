package gateway

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

var update = flag.Bool("update", false, "write the golden files anew")

// needs names an access for the golden table.
func needs(a web.Access) string {
	return [...]string{"nothing", "read", "write", "inspect", "operate", "metrics", "search", "upload", "status", "watch"}[a]
}

// walkers are the sorts of callers; the keys of reader and watcher have the scope read only. inside and elsewhere are ada's keys that are
// limited to the base of the object, and to another one. viewer and lookout have the scope status: ada's key, and an operator's.
func walkers() []string {
	return []string{"owner", "other", "anonymous", "garbage", "reader", "operator", "watcher", "inside", "elsewhere", "viewer", "lookout"}
}

func TestAuthenticatorErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic YTpi", "ada", "Bearer  "} {
		r := b.request(nobody, http.MethodGet, "/api/knowledge/tasks", nil, "Authorization", header)
		b.refused(b.do(r), http.StatusUnauthorized, web.CodeUnauthenticated)
	}
	r := b.request(nobody, http.MethodGet, "/api/knowledge/tasks", nil, "Authorization", "bearer ada")
	require.Equal(t, http.StatusOK, b.do(r).Code, "the scheme is not case-sensitive")
	b.people.err = fmt.Errorf("look up: %w: dial 10.0.0.1", taskstate.ErrUnavailable)
	w := b.get(ada, "/api/knowledge/tasks")
	b.refused(w, http.StatusServiceUnavailable, web.CodeUnavailable)
	require.NotContains(t, w.Body.String(), "10.0.0.1")
	b.people.err = errors.New("boom")
	b.refused(b.get(ada, "/api/knowledge/tasks"), http.StatusInternalServerError, web.CodeInternal)
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
	b.refused(b.send(ada, http.MethodPost, path, "", "Sec-Fetch-Site", "cross-site"), http.StatusForbidden, web.CodeCrossOrigin)
	b.refused(b.send(ada, http.MethodPost, path, "", "Origin", "https://evil.example"), http.StatusForbidden, web.CodeCrossOrigin)
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
