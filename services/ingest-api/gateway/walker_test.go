//go:build !race

// One request at a time is sent: nothing runs beside another that the race detector could see.

package gateway

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

// reached reports whether a row of the walker has a caller who got what he asked for.
func reached(row string) bool {
	for _, code := range []string{"=200", "=201", "=202", "=204"} {
		if strings.Contains(row, code) {
			return true
		}
	}
	return false
}
