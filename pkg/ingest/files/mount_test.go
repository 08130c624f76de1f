package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskrun"
)

// onFolder makes an application on the world's database and another folder; receives: it takes uploads too.
func onFolder(w *ingesttest.World, dir string, receives bool) *app.App {
	w.T.Helper()
	files, err := files.Open(dir)
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = files.Close() })
	deps := w.Deps
	if !receives {
		deps.Adopts = false
	}
	app, err := app.New(deps, files, w.Config)
	require.NoError(w.T, err)
	return app
}

func TestTheUploadFolderIsMarkedOnce(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		ctx, dir := t.Context(), t.TempDir()
		require.ErrorIs(t, onFolder(w, dir, false).CheckFolder(ctx), ingest.ErrFolder, "a worker does not mark an empty folder")
		var group sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			app := onFolder(w, dir, true)
			group.Go(func() { errs[i] = app.CheckFolder(ctx) })
		}
		group.Wait()
		require.NoError(t, errors.Join(errs...), "several gateways at once")
		require.NoError(t, onFolder(w, dir, false).CheckFolder(ctx))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1, "nothing but the marker is left")

		// The folder of another database is refused, empty or not, and never by the same words as an unmounted one.
		other := ingesttest.NewWorld(t, ingesttest.Options{})
		require.NoError(t, os.WriteFile(filepath.Join(dir, ingest.NewID()), []byte("x"), 0o600))
		require.ErrorContains(t, onFolder(other, dir, true).CheckFolder(ctx), "files of another database")
	})
}

func TestTheUploadFolderIsKnownByItsFiles(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	ctx := t.Context()
	w.Upload("one\n")
	require.NoError(t, w.App.CheckFolder(ctx))

	require.NoError(t, os.Remove(filepath.Join(w.Dir, files.MarkerName)), "a folder from before the marker")
	require.NoError(t, onFolder(w, w.Dir, false).CheckFolder(ctx))
	require.FileExists(t, filepath.Join(w.Dir, files.MarkerName))

	epoch, _, err := w.Store.RenewEpoch(ctx)
	require.NoError(t, err)
	require.NoError(t, onFolder(w, w.Dir, false).CheckFolder(ctx), "after timeline renew")
	seen, err := w.Files.Marker()
	require.NoError(t, err)
	require.Equal(t, epoch, seen)

	empty := t.TempDir()
	for _, receives := range []bool{true, false} {
		require.ErrorContains(t, onFolder(w, empty, receives).CheckFolder(ctx), "holds none of the files")
	}
	require.NoError(t, files.Mark(empty, epoch), "the operator says so")
	require.NoError(t, onFolder(w, empty, false).CheckFolder(ctx))
	require.Error(t, files.Mark(filepath.Join(empty, "not there"), epoch))
}

// A folder that is mounted over the one that was opened is seen, and one that went away is missed.
func TestAFolderThatIsMountedLater(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	mount := filepath.Join(t.TempDir(), "uploads")
	app := onFolder(w, mount, false)
	kind, err := app.Worker()
	require.NoError(t, err)
	require.ErrorIs(t, kind.Fit(t.Context()), ingest.ErrFolder)
	job, _ := w.Claim(a.Task.ID)
	require.ErrorIs(t, kind.Handle(t.Context(), job).Err, taskrun.ErrProcess, "a file that is not seen is not missing")
	n, err := app.SweepFiles(t.Context())
	require.ErrorIs(t, err, ingest.ErrFolder)
	require.Zero(t, n)

	require.NoError(t, os.Rename(mount, mount+"-under"))
	require.NoError(t, os.Symlink(w.Dir, mount))
	require.NoError(t, kind.Fit(t.Context()))
	require.NoError(t, kind.Handle(t.Context(), job).Err)

	path := job.Task.FilePath
	require.NoError(t, os.Remove(filepath.Join(w.Dir, path)))
	require.Equal(t, ingest.CodeFileMissing, ingest.AsFailure(kind.Handle(t.Context(), job).Err).Code, "the folder is seen: the file is gone")
}

func TestAnUploadForWantOfResources(t *testing.T) {
	t.Parallel()
	for errno, want := range map[syscall.Errno]error{
		syscall.EMFILE: ingest.ErrNoResources, syscall.EACCES: ingest.ErrNoResources, syscall.EROFS: ingest.ErrNoResources, syscall.ENOSPC: ingest.ErrDiskFull,
	} {
		require.ErrorIs(t, files.ResourceError(&os.PathError{Op: "open", Path: "x", Err: errno}), want)
	}
	require.NoError(t, files.ResourceError(nil))
}
