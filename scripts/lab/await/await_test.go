package await

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUntilTellsTheLastReason(t *testing.T) {
	t.Parallel()
	reason := errors.New("not yet")
	err := Until(t.Context(), 20*time.Millisecond, time.Millisecond, func(context.Context) error { return reason })
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, reason)
	require.NoError(t, Until(t.Context(), time.Second, time.Millisecond, func(context.Context) error { return nil }))
}

// The limit is for one thing less, not for all of them.
func TestUntilNoneGoesOnWhileFewerAreLeft(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	left, began := 10, time.Now()
	require.NoError(t, UntilNone(t.Context(), limit, limit/4, func(context.Context) (int, error) {
		if left--; left == 0 {
			return 0, nil
		}
		return left, errors.New("some are left")
	}))
	require.Greater(t, time.Since(began), limit)
	left = 0
	require.ErrorIs(t, UntilNone(t.Context(), limit, limit/4, func(context.Context) (int, error) {
		left++ // more and more
		return left, errors.New("some are left")
	}), ErrTimeout)
	require.Less(t, left, 10)
}

func TestWhatRunsBesideEndsWhenItIsStopped(t *testing.T) {
	t.Parallel()
	broken := errors.New("it broke")
	began := make(chan struct{})
	stop := Beside(t.Context(), func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return broken
	})
	require.NoError(t, Closed(t.Context(), began))
	for range 2 {
		require.ErrorIs(t, stop(), broken)
	}
}

func TestAnOpenChannelIsWaitedForUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	require.ErrorIs(t, Closed(ctx, make(chan struct{})), why)
}
