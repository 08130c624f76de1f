package archtest

import (
	"go/parser"
	"go/token"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// house is the whole workspace, listed once.
var house = sync.OnceValues(func() ([]listed, error) { return list("work") })

func packages(t *testing.T) []listed {
	t.Helper()
	all, err := house()
	require.NoError(t, err)
	ours := 0
	for _, p := range all {
		if p.path() != "" {
			ours++
		}
	}
	require.Greater(t, ours, 10, "go list must see the workspace, or every rule here passes for nothing")
	return all
}

func TestArrows(t *testing.T) {
	t.Parallel()
	require.Empty(t, strings.Join(arrows(packages(t)), "\n"))
}

func TestLibrariesStayAtHome(t *testing.T) {
	t.Parallel()
	require.Empty(t, strings.Join(strays(packages(t)), "\n"))
}

func TestRulesNameWhatIsThere(t *testing.T) {
	t.Parallel()
	all := packages(t)
	require.Empty(t, strings.Join(phantoms(all), "\n"))
	require.NotEmpty(t, phantoms(all[:len(all)/2]), "the rule must bite")
}

func TestForbiddenCalls(t *testing.T) {
	t.Parallel()
	problems, err := forbiddenCalls(packages(t))
	require.NoError(t, err)
	require.Empty(t, strings.Join(problems, "\n"))
}

func TestNothingOfTheTestsInBinaries(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.Name != "main" || !strings.HasPrefix(p.path(), "services/") {
			continue
		}
		deps, err := list("-deps", p.ImportPath)
		require.NoError(t, err)
		require.Greater(t, len(deps), 10)
		require.Empty(t, strings.Join(inBinaries(p.path(), deps), "\n"))
	}
}

// The rules themselves must bite: each case breaks one.
func TestRulesBite(t *testing.T) {
	t.Parallel()
	pkg := func(path string, imports ...string) []listed {
		return []listed{{ImportPath: prefix + path, Imports: imports}}
	}
	for name, tc := range map[string]struct {
		got  []string
		want string
	}{
		"upwards":         {arrows(pkg("pkg/taskstate", prefix+"pkg/ingest")), "pkg/taskstate imports pkg/ingest"},
		"not std":         {arrows(pkg("pkg/taskstate", "github.com/google/uuid")), "only the standard library"},
		"adapter to one":  {arrows(pkg("pkg/ingest/vector/chroma", prefix+"pkg/ingest/vector/embedded")), "chroma imports"},
		"service":         {arrows(pkg("services/reclaimer/reclaimer", prefix+"services/ingest-api/gateway")), "imports services/ingest-api"},
		"no room":         {arrows(pkg("pkg/nowhere")), "add a line"},
		"gin":             {strays(pkg("pkg/ingest", "github.com/gin-gonic/gin/binding")), "HTTP bodies only"},
		"driver":          {strays(pkg("pkg/sqldb/sqlite", "github.com/jackc/pgx/v5")), "one home per dialect"},
		"redis":           {strays(pkg("pkg/ingest", "github.com/redis/rueidis")), "adapters"},
		"signal":          {strays(pkg("services/ingest-api", "os/signal")), "only pkg/process"},
		"labserver":       {strays(pkg("services/ingest-api", prefix+"pkg/labserver")), "tests and scripts"},
		"testify":         {strays(pkg("pkg/ingest", "github.com/stretchr/testify/require")), "tests only"},
		"suite in binary": {inBinaries("x", pkg("pkg/taskstate/taskstatetest")), "is for tests"},
	} {
		require.Len(t, tc.got, 1, name)
		require.Contains(t, tc.got[0], tc.want, name)
	}
	for name, fine := range map[string][]string{
		"all in one":  arrows(pkg("services/millweir", prefix+"services/ingest-api/gateway")),
		"suite test":  strays(pkg("pkg/taskstate/taskstatetest", "testing", "pgregory.net/rapid")),
		"own adapter": strays(pkg("pkg/sqldb/mysql", "github.com/go-sql-driver/mysql")),
	} {
		require.Empty(t, fine, name)
	}
}

func TestCallsBite(t *testing.T) {
	t.Parallel()
	find := func(path, src string) []string {
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, "x.go", "package x\n"+src, parser.SkipObjectResolution)
		require.NoError(t, err)
		return callsIn(path, files, f)
	}
	require.Len(t, find("pkg/ingest", `import "os"; func f() { os.Exit(1) }`), 1)
	require.Len(t, find("pkg/ingest", `import sys "os"; var quit = sys.Exit`), 1)
	require.Len(t, find("pkg/taskstate", `import "time"; var n = time.Now()`), 1)
	require.Len(t, find("pkg/ingest", `import "time"; func f() { time.Sleep(1) }`), 1)
	require.Len(t, find("pkg/ingest", `import "net/http"; var c = &http.Client{}`), 1)
	require.Len(t, find("services/ingest-api/gateway", `import "net/http"; var f = http.NewRequestWithContext`), 1)
	require.Empty(t, find("pkg/auth/token", `import "net/http"; var c = &http.Client{}`))
	require.Empty(t, find("pkg/process", `import "os"; func f() { os.Exit(1) }`))
	require.Empty(t, find("pkg/ingest", `import "time"; var n = time.Now()`))
	require.Empty(t, find("pkg/ingest", `import "example.org/os"; func f() { os.Exit(1) }`))
}

func TestRoomsAreNamedOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range rooms {
		require.False(t, seen[r.path], r.path)
		seen[r.path] = true
	}
}
