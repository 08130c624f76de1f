package mutants

import (
	"bytes"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

func TestEachBugFitsTheSourceAndChangesIt(t *testing.T) {
	t.Parallel()
	sources, err := seeded(root)
	require.NoError(t, err)
	for _, b := range bugs {
		require.NotEmpty(t, patches[b.name], b.name)
		for _, p := range patches[b.name] {
			require.Regexp(t, `seededBug\("`+b.name+`"\)|-- @unless `+b.name+`\n`, text(b.name), b.name)
			require.Contains(t, sources, p.file)
		}
	}
	require.Len(t, patches, len(bugs), "a patch belongs to no bug")
	for name, seeded := range sources {
		if strings.HasSuffix(name, ".go") && filepath.Base(name) != "seeded_bug.go" {
			own, err := os.ReadFile(filepath.Join(root, name))
			require.NoError(t, err)
			require.NotEqual(t, program(t, string(own)), program(t, seeded), name)
			require.NotContains(t, string(own), "seededBug", name)
		}
	}
}

// text is all that the patches of a bug put in.
func text(bug string) string {
	var out strings.Builder
	for _, p := range patches[bug] {
		out.WriteString(p.text)
	}
	return out.String()
}

// program is a source without its comments.
func program(t *testing.T, source string) string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, printer.Fprint(&out, files, file))
	return out.String()
}

func TestEachBugCompiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles packages")
	}
	whole, err := filepath.Abs(root)
	require.NoError(t, err)
	overlay, err := Overlay(whole, t.TempDir())
	require.NoError(t, err)
	folders := map[string]bool{}
	args := []string{"build", "-overlay", overlay}
	for _, all := range patches {
		for _, p := range all {
			if dir := filepath.Dir(p.file); strings.HasSuffix(p.file, ".go") && !folders[dir] {
				folders[dir] = true
				args = append(args, "./"+dir)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = whole
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "mend scripts/lab/mutants/patches.go:\n%s", out)
}

func TestAPatchThatDoesNotFitSaysHowToMendIt(t *testing.T) {
	t.Parallel()
	err := &GoneError{Patch: patch{file: "pkg/a.go", old: "x := 1"}, Now: []string{"pkg/b.go"}}
	require.ErrorContains(t, err, "it stands in pkg/b.go")
	require.ErrorContains(t, &GoneError{Patch: patch{file: "pkg/a.go", old: "x := 1"}}, "it stands nowhere")
	require.Equal(t, []string{"pkg/taskstate/claim.go"}, find(root, "func Claim(p Policy"))
}

// A test that has moved finds nothing where its check looks.
func TestEachCheckHasItsTests(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, b := range bugs {
		for _, c := range b.checks {
			files, err := filepath.Glob(filepath.Join(root, c.pkg, "*_test.go"))
			require.NoError(t, err)
			first, _, _ := strings.Cut(c.tests, "/")
			wanted, found := regexp.MustCompile(first), false
			for _, file := range files {
				source, err := os.ReadFile(file)
				require.NoError(t, err)
				for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
					found = found || wanted.MatchString(m[1])
				}
			}
			require.True(t, found, "%s: no test of %s; look where it is now: git grep '%s'", b.name, c, first)
		}
	}
}
