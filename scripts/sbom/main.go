// Command sbom writes what is in Go binaries as CycloneDX JSON, one file for each: DIR/<name>.cdx.json.
//
//	sbom -out DIR [-version V] BINARY…
//
// It reads what the linker has put into the binary (as `go version -m` does), so that the list is that of the very file
// and not of a go.mod. The same binary gives the same bytes: there is no time in it, and the serial number comes from
// the binary's sum.
package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millweir/millweir/pkg/process"
)

func main() {
	process.Command(func(context.Context) int {
		flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
		out := flags.String("out", ".run/sbom", "folder of the lists")
		version := flags.String("version", "", "version of the binaries; empty: what the linker has noted")
		if err := flags.Parse(os.Args[1:]); err != nil || flags.NArg() == 0 {
			_, _ = fmt.Fprintln(os.Stderr, "usage: sbom -out DIR BINARY…")
			return process.ExitUsage
		}
		var errs []error
		for _, binary := range flags.Args() {
			line, err := write(*out, binary, *version)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", binary, err))
				continue
			}
			_, _ = fmt.Fprintln(os.Stdout, line)
		}
		if err := errors.Join(errs...); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "sbom:", err)
			return process.ExitFailed
		}
		return process.ExitOK
	})
}

// write makes the list of one binary and returns a line about it; version "" is the linker's.
func write(dir, binary, version string) (line string, err error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return "", err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return "", fmt.Errorf("not a Go binary: %w", err)
	}
	if version == "" {
		version = info.Main.Version
	}
	list := describe(filepath.Base(binary), version, content, info)
	if err := check(list, info); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(binary)+".cdx.json")
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %d components", path, len(list.Components)), nil
}
