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
