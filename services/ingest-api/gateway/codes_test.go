package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/ingest-api/gateway/apidoc"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// codeName is how error codes are written.
var codeName = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)

// codesOf finds the error codes in a file: constants called code… or Code…, and texts given to a field or variable called
// code, Code, errorCode or ErrorCode, or compared with one.
func codesOf(file *ast.File) map[string]token.Pos {
	found := map[string]token.Pos{}
	take := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && codeName.MatchString(text) {
				found[text] = lit.Pos()
			}
		}
	}
	names := func(e ast.Expr) bool {
		name := ""
		switch x := e.(type) {
		case *ast.Ident:
			name = x.Name
		case *ast.SelectorExpr:
			name = x.Sel.Name
		}
		return slices.Contains([]string{"code", "Code", "errorCode", "ErrorCode"}, name)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.ValueSpec:
			for i, name := range x.Names {
				lower := strings.ToLower(name.Name)
				if i < len(x.Values) && strings.HasPrefix(lower, "code") {
					take(x.Values[i])
				}
			}
		case *ast.KeyValueExpr:
			if names(x.Key) {
				take(x.Value)
			}
		case *ast.AssignStmt:
			for i, left := range x.Lhs {
				if i < len(x.Rhs) && names(left) {
					take(x.Rhs[i])
				}
			}
		case *ast.CallExpr: // problemf, Permanent, Transient, refuse: the code comes first, or second
			for _, arg := range x.Args[:min(len(x.Args), 2)] {
				if called := calledName(x.Fun); slices.Contains([]string{"problemf", "Permanent", "Transient", "refuse"}, called) {
					take(arg)
				}
			}
		}
		return true
	})
	return found
}

func calledName(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// notOurs are codes that no user is told: what other programs' protocols call so.
var notOurs = map[string]string{}

// TestEveryCodeOfTheSourceIsInTheTable walks the source of everything that is built into a service, so that a new code without
// a row in the table, and so in the OpenAPI document, fails here.
func TestEveryCodeOfTheSourceIsInTheTable(t *testing.T) {
	t.Parallel()
	d, err := apidoc.Load("")
	require.NoError(t, err)
	listed := apidoc.Texts(apidoc.Child(apidoc.Child(apidoc.Child(d.Root, "components"), "schemas"), "ErrorCode")["enum"])
	files := token.NewFileSet()
	seen := map[string]bool{}
	for _, root := range []string{"../../../pkg", "../../../services"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && (strings.HasSuffix(entry.Name(), "test") || entry.Name() == "examples") {
				return fs.SkipDir // suites, and examples of what others write
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/labserver/") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			for code, pos := range codesOf(file) {
				if seen[code] = true; notOurs[code] == "" && !slices.Contains(listed, code) {
					t.Errorf("%s: %s is not in the table of error codes (codes.go)", files.Position(pos), code)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	require.True(t, seen["CRASH_LIMIT"] && seen["FILE_MISSING"] && seen["UPLOAD_EXPIRED"] && seen["TASK_SUSPENDED"], "the walk finds codes of every kind: %v", seen)
	for code, kind := range web.Kinds {
		require.True(t, seen[code], "%s is in the table and nobody returns it", code)
		require.True(t, kind.Remedy != "" && kind.Message != "" && kind.Status >= 400, code)
	}
}
