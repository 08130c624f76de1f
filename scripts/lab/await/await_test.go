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
