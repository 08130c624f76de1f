package lostfs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/files"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/lostfs"
)

// mount is a file system for one test.
func mount(t *testing.T) (*lostfs.FS, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := lostfs.Mount(dir)
	require.NoError(t, err, "the power cut needs /dev/fuse and the right to mount")
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, dir
}

// write writes a file and flushes what is asked for.
func write(t *testing.T, path, text string, flush bool) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	if flush {
		require.NoError(t, f.Sync())
	}
	require.NoError(t, f.Close())
}

// flush flushes a folder.
func flush(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

func TestAPowerCutTakesWhatWasNotFlushed(t *testing.T) {
	t.Parallel()
	f, dir := mount(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o750))
	write(t, filepath.Join(dir, "sub", "deep"), "deep", true)
	flush(t, filepath.Join(dir, "sub"))
	write(t, filepath.Join(dir, "old"), "kept", true)
	flush(t, dir)
	write(t, filepath.Join(dir, "old"), "newer, not flushed", false)
	write(t, filepath.Join(dir, "nameless"), "its name was not flushed", true)
	write(t, filepath.Join(dir, "temp"), "renamed", true)
	require.NoError(t, os.Rename(filepath.Join(dir, "temp"), filepath.Join(dir, "final")))
	seen, err := os.ReadFile(filepath.Join(dir, "final"))
	require.NoError(t, err)
	require.Equal(t, "renamed", string(seen), "programs see all of it before")
	require.NoError(t, f.Cut())
	for name, want := range map[string]string{"old": "kept", "sub/deep": "deep"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		file, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), file.ModTime(), time.Hour, "a file that was just written is no old one")
	}
	for _, name := range []string{"nameless", "temp", "final"} {
		require.NoFileExists(t, filepath.Join(dir, name))
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "old")))
	require.NoError(t, f.Cut())
	require.FileExists(t, filepath.Join(dir, "old"), "the removal was not flushed")
}

// A received file is on the disk before anybody is told of it (design D11).
func TestAReceivedFileSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	f, dir := mount(t)
	store, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "t.db"), MaxOpen: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	folder, err := files.Open(filepath.Join(dir))
	require.NoError(t, err)
	app, err := app.New(ingest.Deps{
		Store: store, Log: slog.New(slog.DiscardHandler),
		Detect: func([]byte, io.ReaderAt, int64, string) (string, error) { return "text/plain", nil }, Adopts: true,
		Policy: taskstate.Policy{BaseBackoff: time.Second, MaxBackoff: time.Minute, Lease: time.Minute, MaxCrashes: 3, Slack: time.Second},
	}, folder, ingest.NewDefaultConfig())
	require.NoError(t, err)
	text := bytes.Repeat([]byte("what was accepted stays. "), 10_000)
	got, err := app.Receive(t.Context(), bytes.NewReader(text), "a.txt")
	require.NoError(t, err)
	require.NoError(t, folder.Close())
	require.NoError(t, f.Cut())
	left, err := os.ReadFile(filepath.Join(dir, got.ID))
	require.NoError(t, err)
	sum := sha256.Sum256(left)
	require.Equal(t, got.SHA256, hex.EncodeToString(sum[:]), "%d of %d bytes are left", len(left), len(text))
}
