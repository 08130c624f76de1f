package pipeline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/taskrun"
)

const (
	// fitDescriptors are more than a run opens: the document, the spool, a child's socket and pipes, connections.
	fitDescriptors = 32
	// fitSpace is the temporary space that a process must have to take work.
	fitSpace = 1 << 20
)

// blame says whose fault an error of a run is; the run has given back what it held.
// What one file or one document alone is the cause of stays a failed attempt: a process that can work proves that.
func (w *Worker) blame(ctx context.Context, job taskrun.Job, err error) error {
	own := fmt.Errorf("%w: %w", taskrun.ErrProcess, err)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, taskrun.ErrProcess):
		return err
	case files.AnyOf(err, files.ResourceFaults):
		return own
	case files.AnyOf(err, files.SpaceFaults):
		if job.Alone && w.Fit(ctx) == nil {
			return ingest.Transient(ingest.CodeLimitExceeded, "the text of the document does not fit into the worker's temporary folder (TMPDIR), "+
				"although it was the only one there: %w", err)
		}
		return own
	case files.AnyOf(err, files.FolderFaults) && w.Fit(ctx) != nil:
		return own
	}
	return err
}

// Fit returns nil while this process can run documents; otherwise what is missing: the upload folder, descriptors, temporary
// space, or a document reader that starts.
func (w *Worker) Fit(ctx context.Context) error {
	if err := w.mount.CheckFolder(ctx); err != nil {
		return err
	}
	if err := tryDescriptors(); err != nil {
		return fmt.Errorf("file descriptors (ulimit -n): %w", err)
	}
	if err := trySpace(); err != nil {
		return fmt.Errorf("temporary folder (TMPDIR): %w", err)
	}
	if prober, ok := w.d.Extractor.(interface {
		Fit(ctx context.Context) error
	}); ok {
		return prober.Fit(ctx)
	}
	return nil
}

// tryDescriptors opens as many files as a run needs, and closes them.
func tryDescriptors() error {
	for range fitDescriptors {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // all stay open until the last one is
	}
	return nil
}

// trySpace writes a spool of fitSpace bytes and removes it.
func trySpace() error {
	s := &spool{buffer: make([]byte, fitSpace)}
	defer s.close()
	_, _ = rand.Read(s.buffer) // a file system that compresses must find room for it too
	return s.spill()
}

// missing returns the error of a stored file that is not there: it is gone only where the folder itself is seen.
func (r reading) missing(ctx context.Context, err error) error {
	if folder := r.w.mount.CheckFolder(ctx); folder != nil {
		return fmt.Errorf("%w: open stored file: %w (%w)", taskrun.ErrProcess, err, folder)
	}
	if f, again := r.w.mount.Folder.Open(r.work.path); again == nil { // the folder came back meanwhile
		_ = f.Close()
		return fmt.Errorf("%w: open stored file: %w", taskrun.ErrProcess, err)
	}
	return ingest.Permanent(ingest.CodeFileMissing, remedyMissing, "open stored file: %w", err)
}
