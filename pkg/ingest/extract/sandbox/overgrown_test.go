package sandbox

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhenAChildIsOvergrown(t *testing.T) {
	t.Parallel()
	require.Equal(t, "the reader took more than 1 MiB of memory", Overgrown(1<<20, os.Getppid()))
	require.Equal(t, "the parent has gone", Overgrown(1<<50, os.Getppid()+1))
	require.Empty(t, Overgrown(1<<50, os.Getppid()))
	held := make([]byte, 64<<20)
	for i := range held {
		held[i] = 1
	}
	require.NotEmpty(t, Overgrown(64<<20, os.Getppid()), "a test that holds 64 MiB is larger than that: the unit is bytes")
	require.Equal(t, byte(1), held[len(held)-1])
}
