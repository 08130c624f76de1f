package taskrun

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskrun/internal/local"
)

// Trouble that goes on is one line in half a minute, which tells how many were left out; another sort has lines of its own.
func TestTroublesAreLoggedOnceInAWhile(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := instant()
	h := local.NewHealth(time.Second, time.Minute, slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return now })
	for range 3 {
		h.Warn(t.Context(), "runner: one", errHopeless)
		now = now.Add(9 * time.Second)
	}
	h.Warn(t.Context(), "runner: other", errHopeless)
	require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
	require.NotContains(t, out.String(), "suppressed")
	now = now.Add(3 * time.Second)
	h.Warn(t.Context(), "runner: one", errHopeless, slog.String("task_id", "t"))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	for _, part := range []string{"level=WARN", `msg="runner: one"`, "task_id=t", "error=hopeless", "suppressed=2"} {
		require.Contains(t, lines[2], part)
	}
}
