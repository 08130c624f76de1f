package document

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	pdfPages   = 300
	pdfRuns    = 5
	smallFiles = 150 // below the number after which a child is replaced
)

// Pdf reads PDFs in one resident child and divides by the CPU time of that child.
func Pdf(ctx context.Context, _ *world.Bench) (figures []figure.Figure, err error) {
	cfg := extract.NewDefaultConfig()
	cfg.Parallel = 1
	pool, err := extract.NewPool(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer pool.Close() //nolint:errcheck // ends the children; nothing depends on it
	dir, err := os.MkdirTemp("", "millweir-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	long, short := filepath.Join(dir, "long.pdf"), filepath.Join(dir, "short.pdf")
	if err := os.WriteFile(long, pdfgen.Text(pdfPages, 1), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(short, pdfgen.Text(1, 2), 0o600); err != nil {
		return nil, err
	}
	if _, err := read(ctx, pool, short, 1); err != nil { // starts the child and warms the cache
		return nil, err
	}
	pages, err := read(ctx, pool, long, pdfRuns)
	if err != nil {
		return nil, err
	}
	files, err := read(ctx, pool, short, smallFiles)
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		{Name: "PDF text, 300 pages, per CPU second", Measured: pages.pages / pages.cpu, Unit: "pages", Asked: 250, Relation: "≥", Note: fmt.Sprintf("%d reads, cache warm", pdfRuns)},
		{Name: "small PDFs per CPU second, resident child", Measured: files.files / files.cpu, Unit: "files", Asked: 40, Relation: "≥", Note: fmt.Sprintf("%d files; %.0f a second by the clock", smallFiles, files.files/files.wall)},
	}, nil
}

// reading is what some reads took.
type reading struct{ files, pages, cpu, wall float64 }

// read reads one file n times.
func read(ctx context.Context, pool *extract.Pool, path string, n int) (r reading, err error) {
	before, started := childrenCPU(), time.Now()
	for range n {
		f, err := os.Open(path)
		if err != nil {
			return r, err
		}
		ex, err := pool.Extract(ctx, ingest.Source{File: f, Name: filepath.Base(path)}, func(int, int) {}, func(ingest.Block) error { return nil })
		_ = f.Close() // only read
		if err != nil {
			return r, fmt.Errorf("read %s: %w", filepath.Base(path), err)
		}
		r.files++
		r.pages += float64(ex.Pages)
	}
	r.cpu, r.wall = childrenCPU()-before, time.Since(started).Seconds()
	if r.cpu <= 0 && n > 1 {
		return r, fmt.Errorf("read %s: the child's CPU time is %.2f s", filepath.Base(path), r.cpu)
	}
	return r, nil
}

// childrenCPU is the CPU time of all our children that live.
func childrenCPU() float64 {
	sum := 0.0
	for _, pid := range proc.Children(os.Getpid()) {
		sum += proc.CPUSeconds(pid)
	}
	return sum
}
