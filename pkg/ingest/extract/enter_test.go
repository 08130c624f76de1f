package extract

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A document that waits for a child is starved, not stalled: it says that it is there.
func TestWaitingForAChildIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Pool{slots: make(chan struct{}, 1)}
		require.NoError(t, p.enter(t.Context(), nil))
		reports := 0
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		require.ErrorIs(t, p.enter(ctx, func(done, total int) {
			require.Zero(t, done+total)
			reports++
		}), context.DeadlineExceeded)
		require.Equal(t, 2, reports)
		<-p.slots
		require.NoError(t, p.enter(t.Context(), nil))
	})
}
