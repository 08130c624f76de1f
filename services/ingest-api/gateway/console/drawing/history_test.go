package drawing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
)

func TestThePlotIsToScale(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 30, 0, 0, time.UTC)
	part := func(ago time.Duration, done, dead int64, half, most float64) wire.Bucket {
		b := wire.Bucket{At: wire.At(now.Add(-ago)), Succeeded: done, Dead: dead}
		if done > 0 {
			b.SecondsHalf, b.SecondsMost, b.Sampled = &half, &most, int(done)
		}
		return b
	}
	p := OfHistory(wire.History{Buckets: []wire.Bucket{
		part(3*time.Minute, 1, 0, 1, 2), part(2*time.Minute, 0, 0, 0, 0), part(time.Minute, 3, 1, 3, 8), part(0, 0, 2, 0, 0),
	}}, false)
	require.Len(t, p.Bars, 4)
	require.EqualValues(t, 4, p.Most)
	require.EqualValues(t, 4, p.Done)
	require.EqualValues(t, 3, p.Dead)
	require.Equal(t, 8*time.Second, p.Longest)
	require.Len(t, p.Rows, 3)
	require.Equal(t, now, p.Rows[0].At)
	require.InDelta(t, 25, p.Bars[0].DoneH, 0.001)
	require.InDelta(t, 75, p.Bars[2].DoneH, 0.001)
	require.InDelta(t, 0, p.Bars[2].DeadY, 0.001)
	require.InDelta(t, 50, p.Bars[3].DeadH, 0.001)
	require.InDelta(t, 450, p.Bars[3].X, 0.001)
	require.InDelta(t, 37.5, p.Bars[2].HalfH, 0.001)
	require.InDelta(t, 62.5, p.Bars[2].SlowH, 0.001)
	require.InDelta(t, 0, p.Bars[2].SlowY, 0.001)
	require.InDelta(t, 75, p.Bars[0].SlowY, 0.001)
	empty := OfHistory(wire.History{Buckets: make([]wire.Bucket, 60)}, false)
	require.Empty(t, empty.Rows, "and nothing is divided by nothing")
	require.InDelta(t, 100, empty.Bars[0].HalfY, 0.001)
	require.Empty(t, OfHistory(wire.History{}, true).Bars)
}
