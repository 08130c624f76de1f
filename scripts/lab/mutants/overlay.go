package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// switchFile is what each package with a bug gets beside its own files: MILLWEIR_MUTANT names the bug of a process.
const switchFile = `package %s

import "os"

var seededName = os.Getenv("MILLWEIR_MUTANT")

// seededBug tells whether this process has the bug of that name.
func seededBug(name string) bool { return name == seededName }
`

// Env is the setting that gives a process built with Overlay one bug; without it the process has none.
func Env(bug string) string { return "MILLWEIR_MUTANT=" + bug }

// Overlay writes the sources with all seeded bugs below dir and returns the path of the file for `go build -overlay`.
// The checkout itself is only read. Errors: a *GoneError for each patch whose text is not in its file, joined.
func Overlay(root, dir string) (string, error) {
	sources, err := seeded(root)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range sources {
		to := filepath.Join(dir, "source", strings.ReplaceAll(name, "/", "_"))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// seeded returns the text of every file with a bug, and of the new files, by path from the root.
func seeded(root string) (map[string]string, error) {
	out := map[string]string{}
	var gone []error
	all := []patch{unlessPatch}
	for _, name := range slices.Sorted(maps.Keys(patches)) {
		all = append(all, patches[name]...)
	}
	for _, p := range all {
		text, read := out[p.file]
		if !read {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p.file)))
			if err != nil && !os.IsNotExist(err) {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, p.old); n != max(1, p.times) {
			gone = append(gone, &GoneError{Patch: p, Stands: n, Now: find(root, p.old)})
			continue
		}
		out[p.file] = strings.ReplaceAll(text, p.old, p.text)
	}
	if len(gone) > 0 {
		return nil, errors.Join(gone...)
	}
	for _, name := range slices.Collect(maps.Keys(out)) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, out[name], parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("a seeded bug makes %s unreadable: mend its text in scripts/lab/mutants/patches.go: %w", name, err)
		}
		out[name[:strings.LastIndexByte(name, '/')+1]+"seeded_bug.go"] = fmt.Sprintf(switchFile, file.Name.Name)
	}
	return out, nil
}

// GoneError says that a patch does not fit the source any more.
type GoneError struct {
	Patch  patch
	Stands int      // how often the text stands in the file
	Now    []string // where it stands instead
}

// Error says how to mend it.
func (e *GoneError) Error() string {
	where := "it stands nowhere below pkg: write the text of the line that took its place"
	if len(e.Now) > 0 {
		where = "it stands in " + strings.Join(e.Now, ", ") + ": correct the file or make the text longer"
	}
	return fmt.Sprintf("a seeded bug does not fit: %s has the text below %d times, must be %d\n%s\nMend it in "+
		"scripts/lab/mutants/patches.go (file, old, text); %s. Then `make mutants NAME=…` must find the bug again.",
		e.Patch.file, e.Stands, max(1, e.Patch.times), e.Patch.old, where)
}

// find returns the files below pkg in which a text stands; what cannot be read is not named.
func find(root, text string) []string {
	var out []string
	source := os.DirFS(root)
	for _, pattern := range []string{".go", ".sql"} {
		_ = fs.WalkDir(source, "pkg", func(name string, _ fs.DirEntry, _ error) error {
			if b, err := fs.ReadFile(source, name); err == nil && strings.HasSuffix(name, pattern) && strings.Contains(string(b), text) {
				out = append(out, name)
			}
			return nil
		})
	}
	return out
}
