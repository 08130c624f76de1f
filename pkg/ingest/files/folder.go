// Package files is the upload folder: where an upload's bytes are written, synced, found again and removed.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
)

// filePage is how many names of the folder are looked at together.
const filePage = 500

// CopyBuffer is how much of a file is read at once.
const CopyBuffer = 128 << 10

// Drop removes a file of ours and logs what prevents it: the sweeper tries again in a day.
func (a *Mount) Drop(ctx context.Context, name string) {
	if err := a.Folder.Remove(name); err != nil {
		a.d.Log.WarnContext(ctx, "ingest: remove file", "file", name, "error", err.Error())
	}
}

// contextReader ends a copy when its request ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// NewContextReader is r until ctx ends.
func NewContextReader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

// Read implements io.Reader.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// ignoreEOF is err, but nil for the end of a listing.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

const (
	TempPrefix = "tmp-" // of uploads that are still being received
	fileMode   = 0o640
	idLength   = 36 // of a UUID's text
)

// Folder is the upload folder. Every name in it is of our own making, and nothing outside it can be reached (os.Root).
// It is safe for concurrent use.
type Folder struct {
	dir     string
	current atomic.Pointer[os.Root]
	renamed *batcher.Batcher[struct{}] // waits for the folder's fsync

	mu       sync.Mutex
	replaced []*os.Root // by a folder of the same name that was mounted later
}

// Open opens the folder and makes it when it is missing. Close it in the end.
func Open(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make upload folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open upload folder: %w", err)
	}
	f := &Folder{dir: dir}
	f.current.Store(root)
	// One fsync of the folder makes all renames durable that were done before it began. The files' own run side by side.
	f.renamed = batcher.New(batcher.Config{}, func(context.Context, *batcher.Batch[struct{}]) error { return f.sync() })
	return f, nil
}

// Close releases the folder.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := []error{f.root().Close()}
	for _, old := range f.replaced {
		errs = append(errs, old.Close())
	}
	return errors.Join(errs...)
}

// root is the folder as it is opened now.
func (f *Folder) root() *os.Root { return f.current.Load() }

// swap takes a folder that was mounted over the opened one; files of that one may still be read.
func (f *Folder) swap(now *os.Root) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replaced = append(f.replaced, f.current.Swap(now))
}

// Open opens a stored file for reading. fs.ErrNotExist when it is gone or the name is not one of ours.
func (f *Folder) Open(name string) (*os.File, error) {
	if !ownName(name) {
		return nil, fmt.Errorf("stored file %q: %w", name, fs.ErrNotExist)
	}
	return f.root().Open(name)
}

// Writable returns nil when the folder takes files (readiness).
func (f *Folder) Writable() error {
	const probe = ".writable"
	h, err := f.root().OpenFile(probe, os.O_CREATE|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("upload folder: %w", SpaceError(err))
	}
	return h.Close()
}

// Create makes the temporary file of an upload.
func (f *Folder) Create(id string) (*os.File, error) {
	return f.root().OpenFile(TempPrefix+id, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
}

// Keep gives a received file its final name; it is durable when keep returns nil (D11: rename, then the folder's fsync).
func (f *Folder) Keep(ctx context.Context, id string) error {
	if err := f.root().Rename(TempPrefix+id, id); err != nil {
		return err
	}
	if err := crash.Fault("api.after_rename"); err != nil {
		return err
	}
	return f.renamed.Do(context.WithoutCancel(ctx), struct{}{})[0] // whoever asks has to know
}

// Whole reports whether a stored file is there with its size.
func (f *Folder) Whole(name string, bytes int64) (bool, error) {
	info, err := f.root().Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at stored file: %w", err)
	}
	return info.Mode().IsRegular() && info.Size() == bytes, nil
}

// Replace puts the bytes of the stored file good in the place of another, at once and durably; good stays as it is.
// Who has the old file open goes on reading that.
func (f *Folder) Replace(ctx context.Context, name, good string) error {
	temp := TempPrefix + ingest.NewID()
	defer func() { _ = f.Remove(temp) }() // gone by the rename, unless both were names of one file already
	if err := f.root().Link(good, temp); err != nil {
		if err := f.duplicate(good, temp); err != nil { // a file system without hard links
			return err
		}
	}
	if err := crash.Fault("api.after_replacement_link"); err != nil {
		return err
	}
	if err := f.root().Rename(temp, name); err != nil {
		return err
	}
	if err := crash.Fault("api.after_replacement"); err != nil {
		return err
	}
	return f.renamed.Do(context.WithoutCancel(ctx), struct{}{})[0]
}

// duplicate copies a stored file to a new name, durably but for the folder's entry.
func (f *Folder) duplicate(from, to string) (err error) {
	in, err := f.root().Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := f.root().OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// sync makes the folder's entries durable.
func (f *Folder) sync() error {
	dir, err := f.root().Open(".")
	if err != nil {
		return err
	}
	err = dir.Sync()
	return errors.Join(err, dir.Close())
}

// Remove deletes a stored file; a missing one is no error.
func (f *Folder) Remove(name string) error {
	if !ownName(strings.TrimPrefix(name, TempPrefix)) {
		return fmt.Errorf("remove stored file: %q is not a name of ours", name)
	}
	if err := f.root().Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Older calls yield with pages of names of ours whose file was last written before the given time.
func (f *Folder) Older(before time.Time, yield func(names []string) error) error {
	dir, err := f.root().Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for {
		entries, err := dir.ReadDir(filePage)
		var names []string
		for _, e := range entries {
			info, statErr := e.Info()
			if statErr != nil || !info.Mode().IsRegular() || !info.ModTime().Before(before) {
				continue
			}
			if ownName(strings.TrimPrefix(e.Name(), TempPrefix)) {
				names = append(names, e.Name())
			}
		}
		if len(names) > 0 {
			if err := yield(names); err != nil {
				return err
			}
		}
		if err != nil || len(entries) == 0 {
			return ignoreEOF(err)
		}
	}
}

// ownName reports whether a name is a UUID as we write it: lower case hex digits and dashes, no path.
func ownName(name string) bool {
	if len(name) != idLength {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// WrittenAt is when a file was last written.
func (f *Folder) WrittenAt(name string) (time.Time, error) {
	info, err := f.root().Stat(name)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Stored calls yield with pages of names of received files that were last written before the given time, in no order;
// files of uploads that are still being received are left out.
func (f *Folder) Stored(before time.Time, yield func(names []string) error) error {
	return f.Older(before, func(names []string) error {
		var stored []string
		for _, name := range names {
			if ownName(name) {
				stored = append(stored, name)
			}
		}
		if len(stored) == 0 {
			return nil
		}
		return yield(stored)
	})
}

// What the system says when a process lacks something (design D20).
var (
	// ResourceFaults are the process's wherever they are met: it has no descriptors or memory left.
	ResourceFaults = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}
	// SpaceFaults: a file system that the process writes to is full. One document alone may have filled it.
	SpaceFaults = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	// FolderFaults keep the process from its folders, or one file from being read.
	FolderFaults = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EIO, syscall.ESTALE, syscall.ENOTCONN, syscall.ENODEV}
)

// AnyOf reports whether one of the system's errors is in err's chain.
func AnyOf(err error, errnos []syscall.Errno) bool {
	return slices.ContainsFunc(errnos, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// ResourceError is err, and also ErrNoResources when a fault of the process itself keeps an upload from being taken in.
func ResourceError(err error) error {
	if AnyOf(err, ResourceFaults) || AnyOf(err, FolderFaults) {
		return fmt.Errorf("%w: %w", ingest.ErrNoResources, err)
	}
	return SpaceError(err)
}

// SpaceError turns a full disk or quota into ErrDiskFull.
func SpaceError(err error) error {
	if AnyOf(err, SpaceFaults) {
		return fmt.Errorf("%w: %w", ingest.ErrDiskFull, err)
	}
	return err
}
