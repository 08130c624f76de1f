package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/scripts/lab/await"
)

// onlyChild waits until a process has one child.
func onlyChild(t *testing.T, p *Proc) (pid int) {
	t.Helper()
	require.NoError(t, await.Until(t.Context(), time.Minute, time.Millisecond, func(context.Context) error {
		all := Children(p.PID)
		if len(all) != 1 {
			return fmt.Errorf("%d children", len(all))
		}
		pid = all[0]
		return nil
	}))
	return pid
}

func TestProcessesAreSeenKilledAndStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "p.log")
	p, err := Spawn("sleeper", "/bin/sh", []string{"-c", "echo hello; sleep 60 & wait"}, os.Environ(), dir, log)
	require.NoError(t, err)
	child := onlyChild(t, p)
	require.Equal(t, "hello", p.Tail(1), "said before the child was made")
	require.Positive(t, p.Memory().Sum())
	require.Len(t, p.Memory().Children, 1)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	p.Kill()
	require.True(t, p.Exited())
	require.ErrorIs(t, p.Signal(syscall.SIGTERM), ErrExited)
	require.ErrorIs(t, p.AwaitReady(t.Context(), time.Second), ErrExited)
	q, err := Spawn("polite", "/bin/sh", []string{"-c", "trap 'exit 3' TERM; while :; do sleep 0.01; done"}, os.Environ(), dir, log)
	require.NoError(t, err)
	code, err := q.Stop(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Contains(t, []int{3, -1}, code) // -1: the signal came before the trap
}
