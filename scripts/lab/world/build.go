package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millweir/millweir/scripts/lab/mutants"
)

// buildTags are those of the product (Makefile).
const buildTags = "nomsgpack grpcnotrace"

// services are the binaries that drills start.
var services = []string{"ingest-api", "stream-worker", "reclaimer", "millweir", "outbox-relay", "kafka-consumer", "stream-mirror", "rehydrator", "telegram-gateway"}

// Bench is where a run lives: the checkout, the binaries and the folder for logs.
type Bench struct {
	Root string // the checkout
	Bin  string // folder of the binaries
	Run  string // folder for worlds; logs stay there after the run
}

// Sort is another sort of binaries than the product's.
type Sort string

// The sorts.
const (
	WithPoints Sort = "points" // act at crash points
	WithBugs   Sort = "bugs"   // have the seeded bugs (package mutants)
)

// Prepare finds the checkout above the working folder, builds the binaries for this run alone (so that a `make build`
// beside it changes nothing under way) and names the folder for the worlds of kind.
// Each sort of binaries has a folder of its own.
func Prepare(ctx context.Context, kind string, sorts ...Sort) (*Bench, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	bin, flags := "bin", []string{"build", "-trimpath", "-ldflags", "-s -w", "-tags", buildTags}
	for _, s := range sorts {
		bin += "-" + string(s)
	}
	b := &Bench{Root: root, Bin: filepath.Join(root, ".run", "lab", bin), Run: filepath.Join(root, ".run", kind)}
	for _, dir := range []string{b.Bin, b.Run} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if slices.Contains(sorts, WithPoints) {
		flags[len(flags)-1] += " lab"
	}
	if slices.Contains(sorts, WithBugs) {
		overlay, err := mutants.Overlay(root, b.Bin)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "-overlay", overlay)
	}
	flags = append(flags, "-o", b.Bin+string(filepath.Separator))
	for _, name := range services {
		flags = append(flags, "./services/"+name)
	}
	//nolint:gosec // our own packages
	cmd := exec.CommandContext(ctx, "go", flags...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the services: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return b, nil
}

// Root walks up to the folder of go.work.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("not inside the checkout: no go.work above the working folder")
		}
		dir = up
	}
}
