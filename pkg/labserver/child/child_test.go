package child

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReusedPIDIsNotOurs(t *testing.T) {
	t.Parallel()
	// Our own pid with another start time stands for a pid that was given to a stranger.
	p := &Process{PID: os.Getpid(), Start: "1"}
	require.True(t, p.Exited())
	require.NoError(t, p.End(t.Context(), 9), "must not signal us")
}

// What StopTree has stopped does nothing more: a program of a busy and an idle process, over and over.
func TestStoppedTreeStands(t *testing.T) {
	t.Parallel()
	p, err := Command{Path: "/bin/sh", Args: []string{"-c", "sleep 1000 & while :; do :; done"}}.Start(filepath.Join(t.TempDir(), "log"), false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.End(context.Background(), syscall.SIGKILL)) })
	require.Eventually(t, func() bool { return len(p.Tree()) == 2 }, StopTimeout, pollInterval)
	for range 50 {
		require.NoError(t, p.StopTree(t.Context()))
		for _, q := range p.Tree() {
			require.Equal(t, "T", StatFields(q.PID)[0])
		}
		require.NoError(t, p.SignalTree(syscall.SIGCONT))
	}
}
