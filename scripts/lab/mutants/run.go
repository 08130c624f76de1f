// Package mutants runs the checks against bugs that were seeded on purpose (deploy/docs/mutants.md) and fails when one is not found.
//
//	lab mutants [-name m1,…] [-v] [-list]
//
// The bugs are patches, applied with `go test -overlay`: the product has none of them. Test programs are built once with
// all bugs; MILLWEIR_MUTANT chooses one. Each check must pass without a bug first: a check that always fails catches nothing.
package mutants

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/lab/verb"
)

const (
	checkLimit = 4 * time.Minute // of one check on a loaded machine
	tailLines  = 12
	sideBySide = 4 // bugs under judgement: their tests wait for servers more than they compute
)

// Run is the verb mutants.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	l := &laboratory{dir: filepath.Join(".run", "mutants"), out: &verb.Lines{To: stdout}, clean: map[check]func() error{}}
	var f verb.Flags
	if code, ok := verb.Parse("mutants", args, stderr, &f, func(set *flag.FlagSet) {
		set.BoolVar(&l.verbose, "v", false, "show what each check said")
	}); !ok {
		return code
	}
	chosen, err := verb.Choose(f.Names, bugs, func(b bug) string { return b.name })
	if err != nil {
		return verb.Fail(stderr, "mutants", process.ExitUsage, err)
	}
	if f.List {
		return verb.List(stdout, chosen, func(b bug) (string, string) { return b.name, b.what })
	}
	if err := l.build(ctx, chosen); err != nil {
		return verb.Fail(stderr, "mutants", process.ExitFailed, err)
	}
	var found atomic.Int32
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, b := range chosen {
		group.Go(func() error {
			began := time.Now()
			saw, err := l.judge(ctx, b)
			if (verb.Result{Name: b.name, Took: time.Since(began), Saw: b.what + ": " + saw, Err: err}).Print(l.out) {
				found.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait()
	_, _ = fmt.Fprintf(stdout, "%d of %d seeded bugs found; seeded elsewhere: %s\n", found.Load(), len(chosen), strings.Join(elsewhere, "; "))
	if int(found.Load()) < len(chosen) {
		return process.ExitFailed
	}
	return process.ExitOK
}

// laboratory builds and runs checks.
type laboratory struct {
	dir     string
	verbose bool
	out     io.Writer
	clean   map[check]func() error // runs a check without a bug, once
}

// build compiles the test programs that the bugs need.
func (l *laboratory) build(ctx context.Context, chosen []bug) error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	overlay, err := Overlay(root, l.dir)
	if err != nil {
		return err
	}
	packages := map[string]bool{}
	for _, b := range chosen {
		for _, c := range b.checks {
			packages["./"+c.pkg] = true
			l.clean[c] = sync.OnceValue(func() error { return l.check(ctx, c, "") })
		}
	}
	args := append([]string{"test", "-c", "-overlay", overlay, "-o", l.dir + string(filepath.Separator)}, slices.Sorted(maps.Keys(packages))...)
	//nolint:gosec // the packages are ours, from the table
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests: %w\n%s", err, out)
	}
	return nil
}

// program is the path of a package's test program, as `go test -c` names it.
func (l *laboratory) program(c check) string { return filepath.Join(l.dir, path.Base(c.pkg)+".test") }

// judge runs the checks of one bug and says which found it.
func (l *laboratory) judge(ctx context.Context, b bug) (string, error) {
	var found, blind []string
	for _, c := range b.checks {
		if err := l.clean[c](); err != nil {
			return "", fmt.Errorf("%s fails without a bug too: %w", c, err)
		}
		if err := l.check(ctx, c, b.name); err == nil {
			blind = append(blind, c.String())
			continue
		} else if l.verbose {
			_, _ = fmt.Fprintf(l.out, "     %s: %v\n", c, err)
		}
		found = append(found, c.String())
	}
	saw := "found by " + strings.Join(found, ", ")
	switch {
	case len(found) == 0:
		return "", fmt.Errorf("%s: not found by %s", b.what, strings.Join(blind, ", "))
	case len(blind) > 0:
		saw += "; not by " + strings.Join(blind, ", ")
	}
	return saw, nil
}

// check runs one check; an error means that it found something.
func (l *laboratory) check(ctx context.Context, c check, bug string) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	program, err := filepath.Abs(l.program(c))
	if err != nil {
		return err
	}
	//nolint:gosec // a test program of ours
	cmd := exec.CommandContext(ctx, program, slices.DeleteFunc([]string{
		"-test.run", c.tests, "-test.failfast", "-test.timeout", checkLimit.String(), c.flags,
	}, func(arg string) bool { return arg == "" })...)
	cmd.Dir = filepath.FromSlash(c.pkg)
	cmd.Env = append(os.Environ(), Env(bug))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if err == nil && strings.Contains(out.String(), "no tests to run") {
		return fmt.Errorf("no test of %s matches %s", c.pkg, c.tests)
	}
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return fmt.Errorf("%w\n%s", err, strings.Join(lines[:min(tailLines, len(lines))], "\n"))
}
