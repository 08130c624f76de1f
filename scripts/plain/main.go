// Command plain runs the tests that need a build without the race detector. They are in files with
//
//	//go:build !raced
//
// a tag that nobody sets: `make test` runs them with the detector like all others, and this program once more without it,
// and without C, as the binaries are built.
//
//	plain [-list] PATTERN…
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/process"
)

// tag is what the files' build constraint negates.
const tag = "raced"

func main() {
	process.Command(func(ctx context.Context) int { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// run is the program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("plain", flag.ContinueOnError)
	flags.SetOutput(stderr)
	list := flags.Bool("list", false, "name the tests and run none")
	if err := flags.Parse(args); err != nil || flags.NArg() == 0 {
		return process.ExitUsage
	}
	found, err := find(ctx, ".", flags.Args())
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no test file has the constraint !%s", tag)
	}
	for _, p := range found {
		if err != nil {
			break
		}
		if *list {
			_, _ = fmt.Fprintln(stdout, p.ImportPath, strings.Join(p.tests, " "))
			continue
		}
		err = p.test(ctx, stdout, stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "plain:", err)
		return process.ExitFailed
	}
	return process.ExitOK
}

// listed is a package as `go list` tells of it.
type listed struct {
	Dir, ImportPath           string
	TestGoFiles, XTestGoFiles []string

	tests []string // those of the files that the tag leaves out
}

// test runs the package's tests without the race detector.
func (p listed) test(ctx context.Context, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-run", "^("+strings.Join(p.tests, "|")+")$", p.ImportPath)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), stdout, stderr
	return cmd.Run()
}

// find lists the packages of the patterns with tests in files that the tag leaves out.
func find(ctx context.Context, dir string, patterns []string) ([]listed, error) {
	all, err := packages(ctx, dir, patterns)
	if err != nil {
		return nil, err
	}
	without, err := packages(ctx, dir, append([]string{"-tags", tag}, patterns...))
	if err != nil {
		return nil, err
	}
	var out []listed
	for path, p := range all {
		kept := append(without[path].TestGoFiles, without[path].XTestGoFiles...)
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			if slices.Contains(kept, name) {
				continue
			}
			tests, err := testsOf(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			p.tests = append(p.tests, tests...)
		}
		if len(p.tests) > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b listed) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return out, nil
}

// packages asks `go list`.
func packages(ctx context.Context, dir string, args []string) (map[string]listed, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	out := map[string]listed{}
	for decoder := json.NewDecoder(pipe); ; {
		var p listed
		if err := decoder.Decode(&p); err != nil {
			if !errors.Is(err, io.EOF) {
				return nil, errors.Join(err, cmd.Wait())
			}
			break
		}
		out[p.ImportPath] = p
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return out, nil
}

// testsOf names the tests of a file.
func testsOf(path string) (names []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}
