package child

import (
	"os"
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
