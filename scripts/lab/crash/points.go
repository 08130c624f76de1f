package crash

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// point is one mark in the source.
type point struct {
	name  string
	fault bool   // it can answer an error
	place string // file:line from the project's root
}

// sources are the folders that may hold points.
var sources = []string{"pkg", "services"}

// pointName is part.moment in lower_snake_case.
var pointName = regexp.MustCompile(`^[a-z]+\.[a-z][a-z0-9_]*$`)

// listPoints reads every mark of the source, in the order of their names.
// Errors name marks that are no constant, misnamed, or at two places.
func listPoints(root string) ([]point, error) {
	var out []point
	var errs []error
	for _, dir := range sources {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && path == filepath.Join(root, "pkg", "crash") {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			found, err := pointsOf(root, path)
			out, errs = append(out, found...), append(errs, err)
			return nil
		})
		errs = append(errs, err)
	}
	slices.SortFunc(out, func(a, b point) int { return strings.Compare(a.name, b.name) })
	for i, p := range out {
		if i > 0 && out[i-1].name == p.name {
			errs = append(errs, fmt.Errorf("%s is at two places: %s and %s", p.name, out[i-1].place, p.place))
		}
		if !pointName.MatchString(p.name) {
			errs = append(errs, fmt.Errorf("%s: %q is not part.moment in lower_snake_case", p.place, p.name))
		}
	}
	return out, errors.Join(errs...)
}

// pointsOf reads one file.
func pointsOf(root, path string) ([]point, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	short, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	var out []point
	var errs []error
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := fun.X.(*ast.Ident)
		if !ok || pkg.Name != "crash" || (fun.Sel.Name != "Point" && fun.Sel.Name != "Fault") {
			return true
		}
		p := point{fault: fun.Sel.Name == "Fault", place: fmt.Sprintf("%s:%d", short, files.Position(call.Pos()).Line)}
		if literal, ok := call.Args[0].(*ast.BasicLit); ok {
			p.name, err = strconv.Unquote(literal.Value)
			out, errs = append(out, p), append(errs, err)
		} else {
			errs = append(errs, fmt.Errorf("%s: the point's name is no constant", p.place))
		}
		return true
	})
	return out, errors.Join(errs...)
}
