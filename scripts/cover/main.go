// Command cover reads a coverage profile and fails when a package has too little of it:
// pkg/taskstate, where every rule of a task's life is, wants 95 %, everything else 70 %.
//
//	cover [-v] PROFILE
//
// pkg/ingest/extract counts with all below it: half of it runs in a sandboxed child, which cannot report what it covers.
// Generated files, mains (a line each) and the test helpers (labserver, …test packages) do not count.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/process"
)

// Floors in per cent of statements.
const (
	floorRules     = 95.0
	floorDefault   = 70.0
	rulesPackage   = "pkg/taskstate"
	extractPackage = "pkg/ingest/extract"
	prefix         = "github.com/millweir/millweir/"
)

var errBelow = errors.New("coverage is below its floor")

// exempt are files that do not count.
var exempt = regexp.MustCompile(`\.pb\.go$|/main\.go$|^(scripts|pkg/labserver|pkg/ingest/extract/pdfgen)/|test/[^/]*\.go$`)

func main() {
	process.Command(func(context.Context) int {
		flags := flag.NewFlagSet("cover", flag.ContinueOnError)
		verbose := flags.Bool("v", false, "print every package")
		if err := flags.Parse(os.Args[1:]); err != nil || flags.NArg() != 1 {
			_, _ = fmt.Fprintln(os.Stderr, "usage: cover [-v] PROFILE")
			return process.ExitUsage
		}
		f, err := os.Open(flags.Arg(0))
		if err == nil {
			err = errors.Join(gate(f, os.Stdout, *verbose), f.Close())
		}
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "cover:", err)
			return process.ExitFailed
		}
		return process.ExitOK
	})
}

type share struct{ all, hit int }

func (s share) percent() float64 { return 100 * float64(s.hit) / float64(max(1, s.all)) }

// gate prints the packages below their floor (all of them if verbose) and the total.
func gate(profile io.Reader, out io.Writer, verbose bool) error {
	packages, total, err := read(profile)
	if err != nil {
		return err
	}
	if total.all == 0 {
		return errors.New("the profile is empty")
	}
	var below []string
	for _, n := range slices.Sorted(maps.Keys(packages)) {
		p, floor := packages[n].percent(), floorDefault
		if n == rulesPackage {
			floor = floorRules
		}
		if p < floor {
			below = append(below, n)
		}
		if p < floor || verbose {
			_, _ = fmt.Fprintf(out, "%6.1f %% (floor %.0f %%)  %s\n", p, floor, n)
		}
	}
	_, _ = fmt.Fprintf(out, "coverage %.1f %% of %d statements in %d packages\n", total.percent(), total.all, len(packages))
	if len(below) > 0 {
		return fmt.Errorf("%w: %s", errBelow, strings.Join(below, ", "))
	}
	return nil
}

// read sums the blocks of each package. A block that several test binaries report counts once, as hit if any hit it.
func read(profile io.Reader) (map[string]share, share, error) {
	type block struct {
		statements int
		hit        bool
	}
	blocks := map[string]block{}
	lines := bufio.NewScanner(profile)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "mode:") {
			continue
		}
		// name.go:1.2,3.4 statements count
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, share{}, fmt.Errorf("bad line in the profile: %q", line)
		}
		n, err1 := strconv.Atoi(f[1])
		count, err2 := strconv.ParseInt(f[2], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, share{}, fmt.Errorf("bad line in the profile: %q: %w", line, err)
		}
		b := blocks[f[0]]
		blocks[f[0]] = block{n, b.hit || count > 0}
	}
	packages, total := map[string]share{}, share{}
	for key, b := range blocks {
		file := strings.TrimPrefix(key[:strings.LastIndexByte(key, ':')], prefix)
		if exempt.MatchString(file) {
			continue
		}
		name := path.Dir(file)
		if strings.HasPrefix(name, extractPackage+"/") {
			name = extractPackage
		}
		p := packages[name]
		p.all += b.statements
		total.all += b.statements
		if b.hit {
			p.hit += b.statements
			total.hit += b.statements
		}
		packages[name] = p
	}
	return packages, total, lines.Err()
}
