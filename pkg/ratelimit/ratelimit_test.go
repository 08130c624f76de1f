package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ratelimit"
)

// clock is a time that the test moves.
type clock struct{ at atomic.Int64 }

func (c *clock) Now() time.Time          { return time.Unix(1_700_000_000, c.at.Load()) }
func (c *clock) Advance(d time.Duration) { c.at.Add(int64(d)) }

func take(t *testing.T, l ratelimit.Limiter, key string) (wait time.Duration) {
	t.Helper()
	wait, err := l.Spend(t.Context(), key, 0, 1)
	require.NoError(t, err)
	return wait
}

func TestLocalLimits(t *testing.T) {
	t.Parallel()
	c := &clock{}
	l := ratelimit.NewLocal(c.Now, ratelimit.Limit{Events: 3, Window: time.Minute})
	for range 3 {
		require.Zero(t, take(t, l, "a"))
	}
	require.Equal(t, 20*time.Second, take(t, l, "a"))
	require.Zero(t, take(t, l, "b"), "keys are apart")
	c.Advance(20*time.Second - time.Nanosecond)
	require.Equal(t, time.Nanosecond, take(t, l, "a"))
	c.Advance(time.Nanosecond)
	require.Zero(t, take(t, l, "a"))
	require.Positive(t, take(t, l, "a"))
	c.Advance(2 * time.Minute)
	for range 3 {
		require.Zero(t, take(t, l, "a"))
	}
	require.Positive(t, take(t, l, "a"))
}

func TestLocalForgets(t *testing.T) {
	t.Parallel()
	c := &clock{}
	l := ratelimit.NewLocal(c.Now, ratelimit.Limit{Events: 1, Window: time.Second})
	for i := range 1000 {
		take(t, l, fmt.Sprint(i))
	}
	require.Equal(t, 1000, l.Keys())
	c.Advance(2 * time.Second)
	take(t, l, "x")
	require.Equal(t, 1, l.Keys())
}

func TestBadLimits(t *testing.T) {
	t.Parallel()
	for _, l := range []ratelimit.Limit{{}, {Events: 1}, {Events: -1, Window: time.Second}, {Events: 1000, Window: time.Microsecond}} {
		require.Error(t, l.Validate())
		require.Panics(t, func() { ratelimit.NewLocal(nil, l) })
	}
}

func TestCostsOfSeveralLimits(t *testing.T) {
	t.Parallel()
	c := &clock{}
	l := ratelimit.NewLocal(c.Now, ratelimit.PerMinute(60), ratelimit.PerMinute(6000))
	spend := func(most time.Duration, costs ...int64) time.Duration {
		wait, err := l.Spend(t.Context(), "a", most, costs...)
		require.NoError(t, err)
		return wait
	}
	require.Zero(t, spend(0, 1, 300), "more than a second's is taken at once")
	require.Equal(t, 2*time.Second+10*time.Millisecond, spend(time.Second, 1, 1))
	require.Equal(t, 2*time.Second+10*time.Millisecond, spend(time.Second, 1, 1), "what was refused is not counted")
	require.Equal(t, 2*time.Second+10*time.Millisecond, spend(3*time.Second, 1, 100), "what is waited for is")
	require.Equal(t, 3*time.Second+10*time.Millisecond, spend(ratelimit.Always, 1, 1))
	require.Zero(t, spend(0, 0, -301), "giving back waits for nothing")
	require.Equal(t, 3*time.Second, spend(0, 1, 1), "now the requests are what is short")
	c.Advance(3 * time.Second)
	require.Zero(t, spend(0, 1, 1))
	c.Advance(time.Hour)
	require.Zero(t, spend(0, 0, -1_000_000))
	require.Zero(t, spend(0, 1, 100))
	require.Positive(t, spend(0, 1, 100), "what is given back beyond the limit is lost")
}

// Many who spend from a budget as fast as it lets them use it up, and no more: in ten minutes, and in each single minute.
func TestABudgetIsUsedUpAndNoMore(t *testing.T) {
	t.Parallel()
	for _, perMinute := range []int{1, 7, 90, 600, 1_000_000} {
		synctest.Test(t, func(t *testing.T) {
			l := ratelimit.NewLocal(nil, ratelimit.PerMinute(perMinute))
			cost := int64(max(perMinute/300, 1))
			minutes := make([]atomic.Int64, 10)
			began := time.Now()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for {
						wait, _ := l.Spend(t.Context(), "a", time.Hour, cost)
						<-time.After(wait)
						m := int(time.Since(began) / time.Minute)
						if m >= len(minutes) {
							return
						}
						minutes[m].Add(cost)
					}
				})
			}
			all.Wait()
			sum := int64(0)
			for i := range minutes {
				n := minutes[i].Load()
				sum += n
				require.LessOrEqual(t, float64(n), 1.05*float64(perMinute)+1, "minute %d", i)
			}
			require.InDelta(t, 10*perMinute, sum, 0.05*10*float64(perMinute)+1)
		})
	}
}

// shared is a limiter that answers as the test says.
type shared struct {
	err   error
	asked int
}

func (s *shared) Spend(context.Context, string, time.Duration, ...int64) (time.Duration, error) {
	s.asked++
	return 0, s.err
}

func TestFallbackLimitsAloneWhileTheSharedOneIsAway(t *testing.T) {
	t.Parallel()
	c, s, log := &clock{}, &shared{}, &bytes.Buffer{}
	local := ratelimit.NewLocal(c.Now, ratelimit.Limit{Events: 1, Window: time.Hour})
	f := ratelimit.NewFallback(s, local, slog.New(slog.NewTextHandler(log, nil)), c.Now)
	for range 5 {
		require.Zero(t, take(t, f, "a"))
	}
	s.err = errors.New("connection refused")
	require.Zero(t, take(t, f, "a"), "the local limiter has not counted yet")
	for range 10 {
		require.Positive(t, take(t, f, "a"))
	}
	require.Equal(t, 6, s.asked, "a limiter that failed is left alone for a while")
	c.Advance(3 * time.Second)
	require.Positive(t, take(t, f, "a"))
	require.Equal(t, 7, s.asked)
	require.Equal(t, 1, strings.Count(log.String(), "does not answer"), "one line for one outage")
	s.err = nil
	c.Advance(3 * time.Second)
	require.Zero(t, take(t, f, "a"))
	require.Contains(t, log.String(), "answers again")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.err = ctx.Err()
	_, err := f.Spend(ctx, "a", 0, 1)
	require.ErrorIs(t, err, context.Canceled)
}
