//go:build !race

// One request at a time is sent: nothing runs beside another that the race detector could see.

package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/ingest-api/gateway/apidoc"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// TestRouteWalker calls every route as every sort of caller, with an object of ada's that exists, in every database and Redis (A7–A13).
// The table of answers is a golden file, the same for all: a new route without a row, or a changed
// row, fails here. Who is refused has changed nothing, in the database or in Redis.
func TestRouteWalker(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		var rows []string
		for _, route := range s.g.routes {
			row := fmt.Sprintf("%-6s %-44s needs=%-8s", route.Method, route.Path, needs(route.Access))
			object, before := s.belonging(route), ""
			for _, who := range walkers() {
				if who == "inside" { // another route has deleted ada's base, maybe
					s.secrets[who], before = s.limited(object.base), ""
				}
				if before == "" {
					before = s.hash()
				}
				w := s.walk(route, object, who)
				row += fmt.Sprintf(" %s=%d", who, w.Code)
				if who == "elsewhere" && route.Access != web.AccessPublic {
					require.Equal(t, http.StatusForbidden, w.Code, "%s %s with a key of another base: %s", route.Method, route.Path, w.Body.String())
				}
				if w.Code >= 400 {
					require.Equal(t, before, s.hash(), "%s %s as %s was refused and changed something", route.Method, route.Path, who)
				} else {
					before = "" // the next caller finds something else
				}
				if w.Code < 300 && route.Method != http.MethodGet && strings.Contains(route.Path, ":") {
					object = s.belonging(route) // it is spent
				}
			}
			rows = append(rows, row)
			require.False(t, strings.Contains(route.Path, ":") && !reached(row), "nobody reached an object: %s", row)
		}
		slices.Sort(rows)
		got := strings.Join(rows, "\n") + "\n"
		const golden = "testdata/access.golden"
		if *update && s.parts.Store.Dialect() == "sqlite" {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o644)) //nolint:gosec // a test's file
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), got, "run `go test -run TestRouteWalker/sqlite -update` and look at the difference")
	})
}

// What the description says that a field is when it is missing may be sent: generators of clients send it always.
func TestDocumentedDefaultsMayBeSent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sent := 0
	for _, route := range s.g.routes {
		_, op := operationOf(s.g.api.Root, route.Method, route.Path)
		defaults, body := url.Values{}, map[string]any{}
		parameters, _ := op["parameters"].([]any)
		for _, one := range parameters {
			p := apidoc.Resolve(s.g.api.Root, one)
			if value, has := apidoc.Child(p, "schema")["default"]; has && p["in"] == "query" {
				defaults.Set(apidoc.Text(p, "name"), fmt.Sprint(value))
			}
		}
		content := apidoc.Child(apidoc.Child(apidoc.Child(op, "requestBody"), "content"), "application/json")
		for name, property := range apidoc.Child(flat(s.g.api.Root, content["schema"]), "properties") {
			if value, has := property.(apidoc.Object)["default"]; has {
				body[name] = value
			}
		}
		if len(defaults)+len(body) == 0 || strings.Contains(route.Path, "upload") || route.Method == http.MethodPut { // forms
			continue
		}
		defaults.Del("waitSeconds") // nobody works here: it would wait
		object := s.belonging(route)
		query, given := object.asks(route)
		maps.Copy(query, defaults)
		require.NoError(t, json.Unmarshal([]byte(cmp.Or(given, "{}")), &body))
		var w *httptest.ResponseRecorder
		if target := object.at(route) + "?" + query.Encode(); route.Method == http.MethodGet || route.Method == http.MethodDelete {
			w = s.do(s.request(s.secrets["operator"], route.Method, target, nil))
		} else {
			w = s.send(s.secrets["operator"], route.Method, target, mustJSON(t, body))
		}
		require.NotContains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, w.Code, "%s %s %v %v: %s", route.Method, route.Path, query, body, w.Body)
		sent++
	}
	require.Greater(t, sent, 20)
}

// reached reports whether a row of the walker has a caller who got what he asked for.
func reached(row string) bool {
	for _, code := range []string{"=200", "=201", "=202", "=204"} {
		if strings.Contains(row, code) {
			return true
		}
	}
	return false
}
