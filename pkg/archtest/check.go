package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// listed is what `go list -json` says of a package, as far as the rules need it.
type listed struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	Imports    []string
	ImportMap  map[string]string
	GoFiles    []string
	// TestImports and XTestImports are those of the package's tests.
	TestImports, XTestImports []string
	Module                    *struct {
		Path, Version string
		Replace       *struct{ Version string }
	}
	Error *struct{ Err string }
}

// path is the package's path below our prefix; "" for others.
func (p listed) path() string {
	rest, ok := strings.CutPrefix(p.ImportPath, prefix)
	if !ok {
		return ""
	}
	return rest
}

// list runs go list over the workspace.
func list(args ...string) ([]listed, error) { return listFor(nil, args...) }

// listFor is list for the system and the processor that env names.
func listFor(env []string, args ...string) ([]listed, error) {
	fields := "-json=ImportPath,Name,Dir,Standard,Imports,ImportMap,TestImports,XTestImports,GoFiles,Module,Error"
	cmd := exec.Command("go", append([]string{"list", "-e", fields, "-tags", "nomsgpack,grpcnotrace"}, args...)...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...) // as the programs are built; the race detector's tests have it on
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %v: %w: %s", args, err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("output of go list: %w", err)
		}
		all = append(all, p)
	}
}

// arrows returns a line for each import of ours that the rooms do not allow.
func arrows(packages []listed) (problems []string) {
	for _, p := range packages {
		from := p.path()
		if from == "" {
			continue
		}
		r, ok := roomOf(from)
		if !ok {
			problems = append(problems, from+" has no room: add a line for it to pkg/archtest/rooms.go")
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, prefix)
			switch {
			case ours && !matchesAny(r.imports, to):
				problems = append(problems, fmt.Sprintf("%s imports %s, may import only %v", from, to, r.imports))
			case !ours && matchesAny(stdOnly, from) && strings.Contains(imp, "."):
				problems = append(problems, fmt.Sprintf("%s imports %s, may import only the standard library", from, imp))
			}
		}
	}
	return problems
}

// strays returns a line for each library that is imported outside its home.
func strays(packages []listed) (problems []string) {
	for _, p := range packages {
		from := p.path()
		if from == "" {
			continue
		}
		for _, imp := range p.Imports {
			for _, h := range homes {
				if matches(h.library, imp) && !matchesAny(h.in, from) {
					problems = append(problems, fmt.Sprintf("%s imports %s: %s (%v)", from, imp, h.why, h.in))
				}
			}
		}
	}
	return problems
}

// phantoms returns a line for each pattern of the rules that fits no package, and for each library that nothing
// imports: a rule about nothing holds nothing. A library that nobody may import is forbidden, so it is not asked for.
func phantoms(packages []listed) (problems []string) {
	var paths, imported []string
	for _, p := range packages {
		if p.path() != "" {
			paths = append(paths, p.path())
			imported = slices.Concat(imported, p.Imports, p.TestImports, p.XTestImports)
		}
	}
	seen := map[string]bool{}
	need := func(where, what string, in []string) {
		if !seen[what] && !slices.ContainsFunc(in, func(path string) bool { return matches(what, path) }) {
			problems = append(problems, where+" names "+what+", which is not there")
		}
		seen[what] = true
	}
	for _, r := range rooms {
		for _, pattern := range append([]string{r.path}, r.imports...) {
			need("rooms", pattern, paths)
		}
	}
	for _, h := range homes {
		if h.in != nil {
			need("homes", h.library, append(imported, paths...))
		}
		for _, pattern := range h.in {
			need("homes", pattern, paths)
		}
	}
	for _, c := range calls {
		for _, pattern := range append(c.in, c.only...) {
			need("calls", pattern, paths)
		}
	}
	for _, pattern := range stdOnly {
		need("stdOnly", pattern, paths)
	}
	return problems
}

// inBinaries returns a line for each package that must not get into a service's binary and does.
// deps are the packages of one binary.
func inBinaries(binary string, deps []listed) (problems []string) {
	for _, d := range deps {
		ours := d.path()
		if matches("pkg/labserver/...", ours) || strings.HasSuffix(ours, "test") || d.ImportPath == "testing" ||
			strings.HasPrefix(d.ImportPath, "github.com/stretchr/testify") {
			problems = append(problems, fmt.Sprintf("%s holds %s, which is for tests", binary, d.ImportPath))
		}
	}
	return problems
}

// forbiddenCalls parses the files that go into binaries and returns a line for each use of a name of calls.
func forbiddenCalls(packages []listed) (problems []string, err error) {
	files := token.NewFileSet()
	for _, p := range packages {
		if p.path() == "" {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			problems = append(problems, callsIn(p.path(), files, f)...)
		}
	}
	sort.Strings(problems)
	return problems, nil
}

func callsIn(from string, files *token.FileSet, f *ast.File) (problems []string) {
	imported := importNames(f)
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		for _, c := range calls {
			if imported[x.Name] != c.pkg || sel.Sel.Name != c.name || matchesAny(c.in, from) || c.only != nil && !matchesAny(c.only, from) {
				continue
			}
			at := files.Position(sel.Pos())
			problems = append(problems, fmt.Sprintf("%s/%s:%d uses %s.%s: %s", from, filepath.Base(at.Filename), at.Line, c.pkg, c.name, c.why))
		}
		return true
	})
	return problems
}

// importNames maps the names in a file to the last element of the standard packages they stand for.
func importNames(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, imp := range f.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil || strings.Contains(strings.Split(path, "/")[0], ".") {
			continue
		}
		last := path[strings.LastIndexByte(path, '/')+1:]
		name := last
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = last
	}
	return names
}
