package drawing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

func TestTimelineIsDrawnToScale(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	change := func(after time.Duration, to taskstate.Status) wire.Transition {
		return wire.Transition{ToStatus: to, CreatedAt: wire.At(at.Add(after))}
	}
	log := []wire.Transition{change(0, taskstate.StatusQueued), change(time.Second, taskstate.StatusRunning), change(4*time.Second, taskstate.StatusRetrying)}
	d := OfLog(log, at.Add(10*time.Second))
	require.Len(t, d.Spans, 3)
	require.Equal(t, 10*time.Second, d.Whole)
	for i, want := range []struct {
		wait time.Duration
		x, w float64
		open bool
	}{{time.Second, 0, 100, false}, {3 * time.Second, 100, 300, false}, {6 * time.Second, 400, 600, true}} {
		s := d.Spans[i]
		require.Equal(t, want.wait, s.Wait)
		require.InDelta(t, want.x, s.X, 0.001)
		require.InDelta(t, want.w, s.W, 0.001)
		require.Equal(t, want.open, s.Open)
	}
	require.Equal(t, []time.Duration{0, 2500 * time.Millisecond, 5 * time.Second, 7500 * time.Millisecond, 10 * time.Second}, d.Ticks)

	ended := OfLog(append(log, change(5*time.Second, taskstate.StatusDead)), at.Add(time.Hour))
	require.Equal(t, 5*time.Second, ended.Whole, "the end is the end")
	require.False(t, ended.Spans[3].Open)
	require.Empty(t, OfLog(nil, at).Spans)
	require.Len(t, OfLog(log[:1], at).Spans, 1, "no time has passed, and nothing is divided by it")
}
