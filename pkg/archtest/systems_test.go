package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// systems are the programs and the library that work on other systems than Linux, where the services run.
var systems = []struct{ system, processor, name string }{
	{"darwin", "arm64", "services/millweir"}, // `make run` on a laptop
	{"windows", "amd64", "services/millweir/millweir-cli"},
	{"windows", "amd64", "pkg/streammq"},
}

// TestOtherSystems checks the types of what is built for each system, from the source: no compiler of another system's code is needed.
func TestOtherSystems(t *testing.T) {
	t.Parallel()
	for _, s := range systems {
		t.Run(s.system+"/"+s.name, func(t *testing.T) {
			t.Parallel()
			deps, err := listFor([]string{"GOOS=" + s.system, "GOARCH=" + s.processor}, "-deps", prefix+s.name)
			require.NoError(t, err)
			require.Empty(t, typeErrors(deps, s.processor))
		})
	}
}

// typeErrors checks packages, each of which comes behind those that it imports, and returns what is wrong in ours.
func typeErrors(deps []listed, processor string) (wrong []string) {
	files := token.NewFileSet()
	known := map[string]*types.Package{"unsafe": types.Unsafe}
	for _, d := range deps {
		if d.ImportPath == "unsafe" {
			continue
		}
		ours := d.path() != ""
		if d.Error != nil && ours {
			wrong = append(wrong, d.ImportPath+": "+d.Error.Err)
		}
		check := types.Config{
			IgnoreFuncBodies: !ours, FakeImportC: true, Sizes: types.SizesFor("gc", processor), GoVersion: runtime.Version(),
			Importer: importer(func(path string) (*types.Package, error) {
				if mapped := d.ImportMap[path]; mapped != "" {
					path = mapped
				}
				if p := known[path]; p != nil {
					return p, nil
				}
				return nil, fmt.Errorf("%s is not among what %s imports", path, d.ImportPath)
			}),
			Error: func(err error) {
				if ours {
					wrong = append(wrong, err.Error())
				}
			},
		}
		var parsed []*ast.File
		for _, name := range d.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(d.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return append(wrong, err.Error())
			}
			parsed = append(parsed, file)
		}
		known[d.ImportPath], _ = check.Check(d.ImportPath, files, parsed, nil) // Error has the errors
	}
	return wrong
}

// importer implements types.Importer.
type importer func(path string) (*types.Package, error)

// Import implements types.Importer.
func (i importer) Import(path string) (*types.Package, error) { return i(path) }
