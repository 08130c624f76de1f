package document

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	pdfPages   = 300
	pdfRuns    = 5
	smallFiles = 150 // below the number after which a child is replaced
)

// Pdf reads PDFs in one resident child of each engine and divides by the CPU time of that child; pdftotext reads the same file by turns.
func Pdf(ctx context.Context, b *world.Bench) (figures []figure.Figure, err error) {
	cfg := extract.NewDefaultConfig()
	cfg.Parallel = 1
	pool, err := extract.NewPool(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer pool.Close() //nolint:errcheck // ends the children; nothing depends on it
	cfg.PDFEngine, cfg.PDFReader = extract.PDFNative, filepath.Join(b.Root, "bin", "pdf-reader")
	if cfg.PDFLibrary, err = installed.PDFium(); err != nil {
		return nil, err
	}
	pdftotext, err := exec.LookPath("pdftotext")
	if err != nil {
		return nil, fmt.Errorf("install poppler-utils (run `make deps`): %w", err)
	}
	native, err := extract.NewPool(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer native.Close() //nolint:errcheck // ends the children; nothing depends on it
	if !native.Stats().Native {
		return nil, errors.New("the native reader of PDFs cannot be confined here")
	}
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
	for _, p := range []*extract.Pool{pool, native} {
		if _, err := read(ctx, p, short, 1); err != nil { // starts the child and warms the cache
			return nil, err
		}
	}
	var pages, natively reading
	peer := 0.0
	for range pdfRuns {
		if err := errors.Join(pages.add(ctx, pool, long), natively.add(ctx, native, long)); err != nil {
			return nil, err
		}
		seconds, err := programCPU(exec.CommandContext(ctx, pdftotext, "-enc", "UTF-8", long, os.DevNull))
		if err != nil {
			return nil, err
		}
		peer += seconds
	}
	if n := native.Stats().Repeated; n > 0 {
		return nil, fmt.Errorf("%d of the native reads were repeated in WebAssembly", n)
	}
	peerRate := pdfPages * pdfRuns / peer
	files, err := read(ctx, pool, short, smallFiles)
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		{Name: "PDF text, 300 pages, per CPU second", Measured: pages.pages / pages.cpu, Unit: "pages", Asked: 250, Relation: "≥", Note: fmt.Sprintf("%d reads, cache warm", pdfRuns)},
		{Name: "the same, PDF_ENGINE=native", Measured: natively.pages / natively.cpu, Unit: "pages", Asked: 300, Relation: "≥", Note: fmt.Sprintf("%d reads by turns with the one above", pdfRuns)},
		{Name: "the same, native ÷ pdftotext", Measured: natively.pages / natively.cpu / peerRate, Asked: 2, Relation: "≥", Note: fmt.Sprintf("pdftotext %.0f pages; WebAssembly ÷ pdftotext %.2f", peerRate, pages.pages/pages.cpu/peerRate)},
		{Name: "small PDFs per CPU second, resident child", Measured: files.files / files.cpu, Unit: "files", Asked: 40, Relation: "≥", Note: fmt.Sprintf("%d files; %.0f a second by the clock", smallFiles, files.files/files.wall)},
	}, nil
}

// reading is what some reads took.
type reading struct{ files, pages, cpu, wall float64 }

// add reads one file once more.
func (r *reading) add(ctx context.Context, pool *extract.Pool, path string) error {
	one, err := read(ctx, pool, path, 1)
	r.files, r.pages, r.cpu, r.wall = r.files+one.files, r.pages+one.pages, r.cpu+one.cpu, r.wall+one.wall
	return err
}

// programCPU runs a program and returns its CPU seconds.
func programCPU(c *exec.Cmd) (float64, error) {
	if out, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", c.Path, err, out)
	}
	return (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds(), nil
}

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
