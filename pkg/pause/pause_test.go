package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/pause"
)

func TestAPauseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.True(t, pause.For(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, pause.For(ctx, time.Hour))
		require.Equal(t, 2*time.Second, time.Since(began))
		require.False(t, pause.For(ctx, 0))
	})
}

func TestPausesGrow(t *testing.T) {
	t.Parallel()
	b := pause.Backoff{First: time.Second, Most: 5 * time.Second}
	var got []time.Duration
	for n := range 5 {
		d := b.Next()
		got = append(got, d)
		require.Equal(t, d, pause.Nth(n, b.First, b.Most))
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}, got)
	b.Reset()
	require.Equal(t, time.Second, b.Next())
	require.Equal(t, time.Hour, pause.Nth(1000, time.Second, time.Hour))
}
