// Command vuln looks for known vulnerabilities that our code reaches, with govulncheck.
//
//	vuln -govulncheck FILE [-db DIR] [-work DIR] [-module DIR] PACKAGES…
//
// The database is -db: an index as https://vuln.go.dev serves it, a folder of OSV files, or a checkout or bare clone of
// github.com/golang/vulndb; without it, vuln.go.dev is asked. Where that does not answer, the floors of pkg/archtest are
// checked instead: versions below which a module has a hole that touches us, written down from the same database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/millweir/millweir/pkg/process"
)

// foundCode is govulncheck's exit code when our code reaches a vulnerable symbol.
const foundCode = 3

var errFound = errors.New("our code reaches known vulnerabilities: upgrade the modules named above")

// run holds one look.
type run struct {
	govulncheck string
	db          string // a folder; "": ask vuln.go.dev
	work        string // folder for what is taken out of a repository
	module      string // folder of any module of the workspace: govulncheck wants to stand in one
	tags        string
	packages    []string
	out         io.Writer
}

func main() {
	process.Command(func(ctx context.Context) int {
		r := run{out: os.Stdout}
		flags := flag.NewFlagSet("vuln", flag.ContinueOnError)
		flags.StringVar(&r.govulncheck, "govulncheck", "govulncheck", "the program")
		flags.StringVar(&r.db, "db", "", "database: an index, a folder of OSV files, or a clone of golang/vulndb")
		flags.StringVar(&r.work, "work", ".run/vulndb", "folder for what is taken out of a clone")
		flags.StringVar(&r.module, "module", ".", "folder of a module to start in; packages are those of its workspace")
		flags.StringVar(&r.tags, "tags", "", "build tags")
		if err := flags.Parse(os.Args[1:]); err != nil || flags.NArg() == 0 {
			_, _ = fmt.Fprintln(os.Stderr, "usage: vuln -govulncheck FILE [-db DIR] PACKAGES…")
			return process.ExitUsage
		}
		r.packages = flags.Args()
		if err := r.look(ctx); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "vuln:", err)
			return process.ExitFailed
		}
		return process.ExitOK
	})
}

// look finds a database and asks it, or checks the floors.
func (r run) look(ctx context.Context) error {
	db, what, err := find(ctx, r.db, r.work)
	if r.db == "" && err != nil {
		_, _ = fmt.Fprintf(r.out, "vuln: no database: %v, and VULNDB=DIR names no copy; checking the floors of pkg/archtest instead\n", err)
		if err := r.floors(ctx); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(r.out, "vuln: OK by floors only: every module is at or above the version that mends what is known to touch us")
		return nil
	}
	if err != nil {
		return fmt.Errorf("VULNDB=%s: %w", r.db, err)
	}
	_, _ = fmt.Fprintf(r.out, "vuln: asking %s\n", what)
	if err := r.ask(ctx, db); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(r.out, "vuln: OK: no known vulnerability is reached (%s)\n", what)
	return nil
}

// ask runs govulncheck; what it prints names each finding and the way to it.
func (r run) ask(ctx context.Context, db string) error {
	args := append([]string{"-C", r.module, "-db", db, "-tags", r.tags}, r.packages...)
	err := r.command(ctx, r.govulncheck, args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == foundCode {
		return errFound
	}
	return err
}

// floors runs the test that compares the versions of all linked modules with their floors.
func (r run) floors(ctx context.Context) error {
	return r.command(ctx, "go", "test", "-count=1", "-run", "TestDependencyFloors|TestOlder", "./pkg/archtest")
}

// command runs a program whose output is shown.
func (r run) command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = r.out, r.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
