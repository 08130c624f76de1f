package ingest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun"
)

// onFolder makes an application on the world's database and another folder; receives: it takes uploads too.
func (w *world) onFolder(dir string, receives bool) *App {
	w.t.Helper()
	files, err := OpenFiles(dir)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = files.Close() })
	deps := w.app.d
	deps.Files = files
	if !receives {
		deps.Detect = nil
	}
	app, err := New(deps, w.app.cfg)
	require.NoError(w.t, err)
	return app
}

func TestTheUploadFolderIsMarkedOnce(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		ctx, dir := t.Context(), t.TempDir()
		require.ErrorIs(t, w.onFolder(dir, false).CheckFolder(ctx), ErrFolder, "a worker does not mark an empty folder")
		var group sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			app := w.onFolder(dir, true)
			group.Go(func() { errs[i] = app.CheckFolder(ctx) })
		}
		group.Wait()
		require.NoError(t, errors.Join(errs...), "several gateways at once")
		require.NoError(t, w.onFolder(dir, false).CheckFolder(ctx))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1, "nothing but the marker is left")

		// The folder of another database is refused, empty or not, and never by the same words as an unmounted one.
		other := newWorld(t, worldOptions{})
		require.NoError(t, os.WriteFile(filepath.Join(dir, newID()), []byte("x"), 0o600))
		require.ErrorContains(t, other.onFolder(dir, true).CheckFolder(ctx), "files of another database")
	})
}

func TestTheUploadFolderIsKnownByItsFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	ctx := t.Context()
	w.upload("one\n")
	require.NoError(t, w.app.CheckFolder(ctx))

	require.NoError(t, os.Remove(filepath.Join(w.dir, markerName)), "a folder from before the marker")
	require.NoError(t, w.onFolder(w.dir, false).CheckFolder(ctx))
	require.FileExists(t, filepath.Join(w.dir, markerName))

	epoch, _, err := w.store.RenewEpoch(ctx)
	require.NoError(t, err)
	require.NoError(t, w.onFolder(w.dir, false).CheckFolder(ctx), "after timeline renew")
	seen, err := w.files.marker()
	require.NoError(t, err)
	require.Equal(t, epoch, seen)

	empty := t.TempDir()
	for _, receives := range []bool{true, false} {
		require.ErrorContains(t, w.onFolder(empty, receives).CheckFolder(ctx), "holds none of the files")
	}
	require.NoError(t, MarkFolder(empty, epoch), "the operator says so")
	require.NoError(t, w.onFolder(empty, false).CheckFolder(ctx))
	require.Error(t, MarkFolder(filepath.Join(empty, "not there"), epoch))
}

// A folder that is mounted over the one that was opened is seen, and one that went away is missed.
func TestAFolderThatIsMountedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("one\n")
	mount := filepath.Join(t.TempDir(), "uploads")
	app := w.onFolder(mount, false)
	kind, err := app.Kind()
	require.NoError(t, err)
	require.ErrorIs(t, kind.Fit(t.Context()), ErrFolder)
	job, _ := w.claim(a.Task.ID)
	require.ErrorIs(t, kind.Run(t.Context(), job).Err, taskrun.ErrProcess, "a file that is not seen is not missing")
	n, err := app.SweepFiles(t.Context())
	require.ErrorIs(t, err, ErrFolder)
	require.Zero(t, n)

	require.NoError(t, os.Rename(mount, mount+"-under"))
	require.NoError(t, os.Symlink(w.dir, mount))
	require.NoError(t, kind.Fit(t.Context()))
	require.NoError(t, kind.Run(t.Context(), job).Err)

	path := job.Task.FilePath
	require.NoError(t, os.Remove(filepath.Join(w.dir, path)))
	require.Equal(t, CodeFileMissing, AsFailure(kind.Run(t.Context(), job).Err).Code, "the folder is seen: the file is gone")
}

// faultyExtractor fails as it is told.
type faultyExtractor struct {
	lineExtractor
	err error
}

func (e *faultyExtractor) Extract(context.Context, Source, func(int, int), func(Block) error) (Extraction, error) {
	return Extraction{}, e.err
}

func TestWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	fault := func(errno syscall.Errno) error {
		return Transient(CodeEmbed, "call: %w", &os.SyscallError{Syscall: "socket", Err: errno})
	}
	for name, c := range map[string]struct {
		err     error
		alone   bool
		process bool
		code    Code
	}{
		"no descriptors":            {err: fault(syscall.EMFILE), process: true},
		"none in the system":        {err: fault(syscall.ENFILE), process: true, alone: true},
		"no memory":                 {err: fault(syscall.ENOMEM), process: true},
		"no space":                  {err: fault(syscall.ENOSPC), process: true},
		"no space although alone":   {err: fault(syscall.ENOSPC), alone: true, code: CodeLimitExceeded},
		"one file that may not be":  {err: fault(syscall.EACCES), code: CodeEmbed},
		"one file that is damaged":  {err: fault(syscall.EIO), code: CodeEmbed},
		"a reader's words":          {err: Transient(CodeExtractCrashed, "the reader died: too many open files"), code: CodeExtractCrashed},
		"a document":                {err: Permanent(CodeCorrupt, "", "broken"), code: CodeCorrupt},
		"said by the reader's pool": {err: fmt.Errorf("%w: start", taskrun.ErrProcess), process: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{deps: func(d *Deps) { d.Extractor = &faultyExtractor{err: c.err} }})
			job, _ := w.claim(w.upload("one\n").Task.ID)
			job.Alone = c.alone
			got := w.handler.Run(t.Context(), job).Err
			require.Error(t, got)
			require.Equal(t, c.process, errors.Is(got, taskrun.ErrProcess), "%v", got)
			if !c.process {
				require.Equal(t, c.code, AsFailure(got).Code)
			}
		})
	}
}

// A fault of rights or of the disk is the process's as soon as it does not see its folder at all.
func TestAFaultOfTheWholeFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{deps: func(d *Deps) { d.Extractor = &faultyExtractor{err: syscall.EACCES} }})
	job, _ := w.claim(w.upload("one\n").Task.ID)
	require.NoError(t, os.Remove(filepath.Join(w.dir, markerName)))
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, markerName), 0o700), "a marker that cannot be read")
	require.ErrorIs(t, w.handler.Run(t.Context(), job).Err, taskrun.ErrProcess)
	require.Error(t, w.handler.Fit(t.Context()))
}

func TestATemporaryFolderThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{config: func(c *Config) { c.SpoolDir = "/nowhere/at/all" }})
	w.upload("one\n")
	require.ErrorContains(t, w.handler.Fit(t.Context()), "TMPDIR")
}

func TestAnUploadForWantOfResources(t *testing.T) {
	t.Parallel()
	for errno, want := range map[syscall.Errno]error{
		syscall.EMFILE: ErrNoResources, syscall.EACCES: ErrNoResources, syscall.EROFS: ErrNoResources, syscall.ENOSPC: ErrDiskFull,
	} {
		require.ErrorIs(t, resourceError(&os.PathError{Op: "open", Path: "x", Err: errno}), want)
	}
	require.NoError(t, resourceError(nil))
}
