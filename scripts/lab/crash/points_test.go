package crash

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/world"
)

// source reads the points of this checkout.
func source(t *testing.T) (root string, points []point) {
	t.Helper()
	root, err := world.Root()
	require.NoError(t, err)
	points, err = listPoints(root)
	require.NoError(t, err)
	require.Greater(t, len(points), 60)
	return root, points
}

func TestEveryPointHasASceneAndARow(t *testing.T) {
	t.Parallel()
	root, points := source(t)
	require.NoError(t, matchScenes(points))

	table, err := os.ReadFile(filepath.Join(root, "deploy", "docs", "crash-points.md"))
	require.NoError(t, err)
	rows := map[string]int{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllSubmatch(table, -1) {
		rows[string(m[1])]++
	}
	for _, p := range points {
		require.Equal(t, 1, rows[p.name], "rows of %s (%s) in deploy/docs/crash-points.md", p.name, p.place)
		delete(rows, p.name)
	}
	require.Empty(t, rows, "rows without a point")
}

func TestListRefusesWhatCannotBeTold(t *testing.T) {
	t.Parallel()
	write := func(text string) string {
		root := t.TempDir()
		for _, dir := range sources {
			require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(root, "pkg", "a.go"), []byte("package a\n"+text), 0o600))
		return root
	}
	points, err := listPoints(write(`func f() error { crash.Point("a.one"); return crash.Fault("a.two") }`))
	require.NoError(t, err)
	require.Equal(t, []point{{name: "a.one", place: "pkg/a.go:2"}, {name: "a.two", fault: true, place: "pkg/a.go:2"}}, points)
	for _, bad := range []string{
		`func f() { crash.Point("a.one"); crash.Point("a.one") }`,
		`func f(s string) { crash.Point("a." + s) }`,
		`func f() { crash.Point("AfterOne") }`,
	} {
		_, err := listPoints(write(bad))
		require.Error(t, err, bad)
	}
}

func TestScenesAreComparedWithTheSource(t *testing.T) {
	t.Parallel()
	_, points := source(t)
	require.ErrorContains(t, matchScenes(points[1:]), points[0].name)
	require.ErrorContains(t, matchScenes(append(points, point{name: "new.point"})), "new.point")
}

// An ordinary build holds no point: names would be there if a mark cost anything.
func TestOrdinaryBuildHoldsNoPoint(t *testing.T) {
	t.Parallel()
	root, points := source(t)
	holds := func(tags string) (n int) {
		binary := filepath.Join(t.TempDir(), "stream-worker")
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", tags, "-ldflags", "-s -w", "-o", binary, "./services/stream-worker")
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
		code, err := os.ReadFile(binary)
		require.NoError(t, err)
		for _, p := range points {
			if bytes.Contains(code, []byte(p.name)) {
				n++
			}
		}
		return n
	}
	require.Zero(t, holds("nomsgpack grpcnotrace"))
	require.Greater(t, holds("lab nomsgpack grpcnotrace"), 40, "the search finds them where they are")
}

// Lanes share a server, and two of them may break migrations off at the same time.
func TestBrokenMigrationsHaveDatabasesOfTheirOwn(t *testing.T) {
	t.Parallel()
	_, points := source(t)
	points = slices.DeleteFunc(points, func(p point) bool { return !strings.HasPrefix(p.name, "migrate.") })
	require.Greater(t, len(points), 1)
	names := map[string]bool{}
	for _, p := range points {
		name := brokenDatabase(p.name)
		require.False(t, names[name], "the database of %s", p.name)
		require.Regexp(t, `^[a-z_]+$`, name)
		names[name] = true
	}
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
