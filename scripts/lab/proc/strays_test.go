package proc

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that is just being forked belongs to its parent; one whose parent has died belongs to nobody.
func TestStraysAreChildrenThatOutlivedTheirParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "p.log")
	forks, err := Spawn("forks", "/bin/sh", []string{"-c", "while :; do (:); done"}, os.Environ(), dir, log)
	require.NoError(t, err)
	t.Cleanup(forks.Kill)
	procs := []*Proc{forks}
	for range 100 {
		require.Empty(t, strays(dir, procs))
	}
	leaves, err := Spawn("leaves", "/bin/sh", []string{"-c", "sleep 600 & wait"}, os.Environ(), dir, log)
	require.NoError(t, err)
	procs = append(procs, leaves)
	child := onlyChild(t, leaves)
	kill := sync.OnceFunc(func() { _ = syscall.Kill(child, syscall.SIGKILL) }) // later the pid may be another's
	t.Cleanup(kill)
	require.NoError(t, NoStrays(t.Context(), dir, procs))
	leaves.Kill()
	found := strays(dir, procs)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "sleep 600")
	kill()
	require.NoError(t, NoStrays(t.Context(), dir, procs), "the kernel needs a moment to bury it")
}
