package desk

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Who asks for any number asks for no more than there can be: two of them together asked for less than none.
func TestPollsForAnyNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, got := NewDesk(), make(chan int, 2)
		for range 2 {
			go func() { got <- len(d.Poll(t.Context(), math.MaxInt, time.Hour, 0)) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			n, err := d.Demand(ctx, t.Context(), 1)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			d.Hand(t, n, []*model.Delivery{{}})
			require.Equal(t, 1, <-got)
		}
	})
}

// A worker that stops while it waits takes its place in the line with it, and what it was granted goes to the next.
func TestWorkersThatStopLeaveTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, got, stopped := NewDesk(), make(chan int, 1), make(chan error, 1)
		stopping, stop := context.WithCancel(t.Context())
		go func() {
			_, err := d.Demand(t.Context(), stopping, 5)
			stopped <- err
		}()
		synctest.Wait()
		stop()
		require.ErrorIs(t, <-stopped, ErrStopped)
		go func() { got <- len(d.Poll(t.Context(), 2, time.Hour, 0)) }()
		synctest.Wait()
		n, err := d.Demand(t.Context(), t.Context(), 5)
		require.NoError(t, err)
		require.Equal(t, 2, n, "no more than somebody asks for")
		d.Hand("another", n, nil)
		n, err = d.Demand(t.Context(), t.Context(), 1)
		require.NoError(t, err)
		d.Hand("this", n, []*model.Delivery{{}})
		require.Equal(t, 1, <-got)
		d.Drop("this")
		require.Empty(t, d.Poll(t.Context(), 1, time.Millisecond, 0), "nothing is left")
	})
}
