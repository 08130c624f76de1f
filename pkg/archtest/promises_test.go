package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the top of the tree, seen from here.
const root = "../.."

// A check is named in backquotes: `pkg/x TestY`, `migrations TestY`, `drill main-x`, `rule I1`, `model I1`, `make x`.
var (
	checkNames = regexp.MustCompile("`((?:(?:pkg|services|scripts)/[a-z0-9/-]+|migrations) Test\\w+|drill [a-z0-9-]+|rule [IL]\\d+|model [DIL]\\d+|make [a-z0-9-]+)`")
	headings   = regexp.MustCompile(`(?m)^### (\d)\. (.+)$`)
)

// source is the text of the files below root that a pattern names.
func source(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

// missing returns what is wrong with the name of a check; "" if there is such a check.
func missing(t *testing.T, name string) string {
	t.Helper()
	where, what, _ := strings.Cut(name, " ")
	var text, want string
	switch where {
	case "drill":
		text, want = source(t, "deploy/docs/drills.md"), "\n| `"+what+"` |" // which lab/drill compares with its table
	case "rule":
		text, want = source(t, "pkg/taskstate/history/*.go")+source(t, "pkg/fsck/rules/*.go"), fmt.Sprintf("%q", what)
	case "model": // must("I1", …), or the first word of a sentence
		text, want = source(t, "pkg/taskstate/spec/*.go")+source(t, "pkg/taskstate/spec/kafka/*.go"), fmt.Sprintf("%q", what)
		text = regexp.MustCompile(`"([DIL]\d+) `).ReplaceAllString(text, `"$1" `)
	case "make":
		text, want = source(t, "Makefile"), "\n"+what+":"
	default:
		text, want = source(t, where+"/*_test.go"), "\nfunc "+what+"("
	}
	if !strings.Contains(text, want) {
		return fmt.Sprintf("%s: there is no such check (looked for %q)", name, strings.TrimSpace(want))
	}
	return ""
}

// Every check that the promises name exists, so that no sentence stands on a test that was renamed or removed.
// So does every check of which the page for contributors says that it tells what is missing.
func TestPromisesNameRealChecks(t *testing.T) {
	t.Parallel()
	for page, least := range map[string]int{"README.md": 15, "deploy/docs/guarantees.md": 80, "deploy/docs/contributor.md": 30} {
		found := checkNames.FindAllStringSubmatch(source(t, page), -1)
		require.Greater(t, len(found), least, "%s names too few checks: has their form changed?", page)
		for _, f := range found {
			require.Empty(t, missing(t, f[1]), page)
		}
	}
}

// Each promise has checks of its own, and the two pages make the same promises.
func TestEveryPromiseIsHeld(t *testing.T) {
	t.Parallel()
	text := source(t, "deploy/docs/guarantees.md")
	text, _, _ = strings.Cut(text, "\n## What is not promised")
	at := headings.FindAllStringSubmatchIndex(text, -1)
	require.Len(t, at, 5, "the contract has five")
	readme := source(t, "README.md")
	for i, h := range at {
		number, title := text[h[2]:h[3]], text[h[4]:h[5]]
		require.Equal(t, fmt.Sprint(i+1), number)
		require.Contains(t, readme, fmt.Sprintf("| %s. **%s.**", number, title))
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		require.Greater(t, len(checkNames.FindAllString(text[h[0]:end], -1)), 3, title)
	}
}

func TestMissingChecksAreFound(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pkg/taskstate TestThatIsNot", "pkg/nowhere TestBackoff", "migrations TestThatIsNot", "drill main-nothing", "rule I999", "model I999", "make nothing"} {
		require.NotEmpty(t, missing(t, name), name)
	}
	for _, name := range []string{"pkg/taskstate TestBackoff", "migrations TestUnknownDialect", "drill main-reproduction", "rule I1", "model I1", "model I21", "make test"} {
		require.Empty(t, missing(t, name), name)
	}
}
