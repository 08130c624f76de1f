package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/millweir/millweir/pkg/taskrun"
)

// What the system says when a process lacks something (design D20).
var (
	// resourceFaults are the process's wherever they are met: it has no descriptors or memory left.
	resourceFaults = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}
	// spaceFaults: a file system that the process writes to is full. One document alone may have filled it.
	spaceFaults = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	// folderFaults keep the process from its folders, or one file from being read.
	folderFaults = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EIO, syscall.ESTALE, syscall.ENOTCONN, syscall.ENODEV}
)

const (
	// fitDescriptors are more than a run opens: the document, the spool, a child's socket and pipes, connections.
	fitDescriptors = 32
	// fitSpace is the temporary space that a process must have to take work.
	fitSpace = 1 << 20
)

// ErrProcess marks what an extractor could not do for want of the process's or the machine's resources.
var ErrProcess = taskrun.ErrProcess

// ErrNoResources says that this process lacks what it needs for an upload: descriptors, memory, or the right to its own folder.
var ErrNoResources = errors.New("the process lacks resources")

// anyOf reports whether one of the system's errors is in err's chain.
func anyOf(err error, errnos []syscall.Errno) bool {
	return slices.ContainsFunc(errnos, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// readOnly reports whether err says that a file system takes no writes.
func readOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// resourceError is err, and also ErrNoResources when a fault of the process itself keeps an upload from being taken in.
func resourceError(err error) error {
	if anyOf(err, resourceFaults) || anyOf(err, folderFaults) {
		return fmt.Errorf("%w: %w", ErrNoResources, err)
	}
	return spaceError(err)
}

// blame says whose fault an error of a run is; the run has given back what it held.
// What one file or one document alone is the cause of stays a failed attempt: a process that can work proves that.
func (w *Worker) blame(ctx context.Context, job taskrun.Job, err error) error {
	own := fmt.Errorf("%w: %w", taskrun.ErrProcess, err)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, taskrun.ErrProcess):
		return err
	case anyOf(err, resourceFaults):
		return own
	case anyOf(err, spaceFaults):
		if job.Alone && w.Fit(ctx) == nil {
			return Transient(CodeLimitExceeded, "the text of the document does not fit into the worker's temporary folder (TMPDIR), "+
				"although it was the only one there: %w", err)
		}
		return own
	case anyOf(err, folderFaults) && w.Fit(ctx) != nil:
		return own
	}
	return err
}

// Fit returns nil while this process can run documents; otherwise what is missing: the upload folder, descriptors, temporary
// space, or a document reader that starts.
func (w *Worker) Fit(ctx context.Context) error {
	if err := w.a.CheckFolder(ctx); err != nil {
		return err
	}
	if err := tryDescriptors(); err != nil {
		return fmt.Errorf("file descriptors (ulimit -n): %w", err)
	}
	if err := trySpace(w.a.cfg.SpoolDir); err != nil {
		return fmt.Errorf("temporary folder (TMPDIR): %w", err)
	}
	if prober, ok := w.a.d.Extractor.(interface {
		Fit(ctx context.Context) error
	}); ok {
		return prober.Fit(ctx)
	}
	return nil
}

// tryDescriptors opens as many files as a run needs, and closes them.
func tryDescriptors() (err error) {
	held := make([]*os.File, 0, fitDescriptors)
	for range fitDescriptors {
		f, openErr := os.Open(os.DevNull)
		if err = openErr; err != nil {
			break
		}
		held = append(held, f)
	}
	for _, f := range held {
		_ = f.Close()
	}
	return err
}

// trySpace writes a spool of fitSpace bytes and removes it.
func trySpace(dir string) error {
	s, err := newSpool(dir)
	if err != nil {
		return err
	}
	defer s.close()
	block := make([]byte, fitSpace)
	_, _ = rand.Read(block) // a file system that compresses must find room for it too
	_, err = s.f.Write(block)
	return spaceError(err)
}

// missing returns the error of a stored file that is not there: it is gone only where the folder itself is seen.
func (r *run) missing(ctx context.Context, err error) error {
	if folder := r.a.CheckFolder(ctx); folder != nil {
		return fmt.Errorf("%w: open stored file: %w (%w)", taskrun.ErrProcess, err, folder)
	}
	if f, again := r.a.d.Files.Open(r.work.path); again == nil { // the folder came back meanwhile
		_ = f.Close()
		return fmt.Errorf("%w: open stored file: %w", taskrun.ErrProcess, err)
	}
	return Permanent(CodeFileMissing, remedyMissing, "open stored file: %w", err)
}
