package chart

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kind says how a setting may be given.
type Kind string

// The kinds: an address may hold a login, so it may be given in the open or as a secret.
const (
	KindPlain   Kind = "plain"
	KindAddress Kind = "address"
	KindSecret  Kind = "secret"
)

// Setting is one line of a service's --help-env.
type Setting struct {
	Name, Default, Allowed, Meaning string
}

// Kind follows from what --help-env allows.
func (s Setting) Kind() Kind {
	switch s.Allowed {
	case "a secret":
		return KindSecret
	case "an address":
		return KindAddress
	default:
		return KindPlain
	}
}

// root is the project's folder, seen from this package.
const root = "../.."

// services are the folders below services/ with a main.go, which the Makefile calls binaries.
func services() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "services", "*", "main.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find services/*/main.go: %d found, %w", len(files), err)
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	return names, nil
}

// commandLine is the one binary that is no service: the chart runs its migrations.
const commandLine = "millweir"

// binary is where `make build` puts a service.
func binary(service string) (string, error) {
	return filepath.Abs(filepath.Join(root, "bin", service))
}

// settingsOf asks a service which settings it reads.
func settingsOf(ctx context.Context, service string) ([]Setting, error) {
	path, err := binary(service)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "--help-env")
	cmd.Env = []string{} // the tester's own environment must not matter
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help-env: %w", service, err)
	}
	return parseHelp(string(bytes.TrimSpace(out)))
}

// parseHelp cuts the table of --help-env at the columns of its first line.
func parseHelp(text string) ([]Setting, error) {
	lines := strings.Split(text, "\n")
	var columns []int
	for _, title := range []string{"VARIABLE", "DEFAULT", "ALLOWED", "MEANING"} {
		at := strings.Index(lines[0], title)
		if at < 0 {
			return nil, fmt.Errorf("--help-env: no column %s in %q", title, lines[0])
		}
		columns = append(columns, at)
	}
	var all []Setting
	for _, line := range lines[1:] {
		if line == "" {
			break // what follows is prose
		}
		cells := []rune(line)
		cut := func(i int) string {
			end := len(cells)
			if i+1 < len(columns) {
				end = min(end, columns[i+1])
			}
			return strings.TrimSpace(string(cells[min(columns[i], end):end]))
		}
		all = append(all, Setting{Name: cut(0), Default: cut(1), Allowed: cut(2), Meaning: cut(3)})
	}
	return all, nil
}
