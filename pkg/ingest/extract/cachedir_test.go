package extract

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
)

// readOnly makes a folder one that this process cannot write to until the test ends: for root by a mount, for
// others by its mode.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() == 0 {
		require.NoError(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""), "root needs CAP_SYS_ADMIN here; an ordinary user needs nothing")
		t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
		require.NoError(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	} else {
		require.NoError(t, os.Chmod(dir, 0o555))
		t.Cleanup(func() { require.NoError(t, os.Chmod(dir, 0o755)) })
	}
	require.Error(t, unix.Access(dir, unix.W_OK))
}

// What an image ships is read as it lies there: nothing is compiled and nothing written.
func TestCompiledReaderOfAnImageIsUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), os.Args[0], child.CompileArg, dir).CombinedOutput()
	require.NoError(t, err, string(out))
	readOnly(t, dir)
	p := newPool(t, func(c *Config) { c.CacheDir = dir })
	require.NoError(t, p.Warm(t.Context()))
	require.Equal(t, dir, p.cacheDir)
	readPDF1(t, p)
}

// An image that was built on another processor has no code for this one.
func TestUnfitReaderOfAnImageIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	readOnly(t, dir)
	p := newPool(t, func(c *Config) { c.CacheDir = dir })
	require.NoError(t, p.Warm(t.Context()))
	require.NotEqual(t, dir, p.cacheDir)
	readPDF1(t, p)
	require.NoError(t, p.Close())
	require.NoDirExists(t, p.cacheDir, "the temporary one goes with the pool")
}
