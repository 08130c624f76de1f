package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ratelimit"
)

// clock is a time that the test moves.
type clock struct{ at atomic.Int64 }

func (c *clock) Now() time.Time          { return time.Unix(1_700_000_000, c.at.Load()) }
func (c *clock) Advance(d time.Duration) { c.at.Add(int64(d)) }

func take(t *testing.T, l ratelimit.Limiter, key string) ratelimit.Result {
	t.Helper()
	r, err := l.Take(t.Context(), key)
	require.NoError(t, err)
	return r
}

func TestLocalLimits(t *testing.T) {
	t.Parallel()
	c := &clock{}
	l := ratelimit.NewLocal(ratelimit.Limit{Events: 3, Window: time.Minute}, c.Now)
	for range 3 {
		require.True(t, take(t, l, "a").Allowed)
	}
	require.Equal(t, ratelimit.Result{RetryAfter: 20 * time.Second}, take(t, l, "a"))
	require.True(t, take(t, l, "b").Allowed, "keys are apart")
	c.Advance(20*time.Second - time.Nanosecond)
	require.Equal(t, time.Nanosecond, take(t, l, "a").RetryAfter)
	c.Advance(time.Nanosecond)
	require.True(t, take(t, l, "a").Allowed)
	require.False(t, take(t, l, "a").Allowed)
	c.Advance(2 * time.Minute)
	for range 3 {
		require.True(t, take(t, l, "a").Allowed)
	}
	require.False(t, take(t, l, "a").Allowed)
}

func TestLocalForgets(t *testing.T) {
	t.Parallel()
	c := &clock{}
	l := ratelimit.NewLocal(ratelimit.Limit{Events: 1, Window: time.Second}, c.Now)
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
		require.Panics(t, func() { ratelimit.NewLocal(l, nil) })
	}
}

// shared is a limiter that answers as the test says.
type shared struct {
	err   error
	asked int
}

func (s *shared) Take(context.Context, string) (ratelimit.Result, error) {
	s.asked++
	return ratelimit.Result{Allowed: true}, s.err
}

func TestFallbackLimitsAloneWhileTheSharedOneIsAway(t *testing.T) {
	t.Parallel()
	c, s, log := &clock{}, &shared{}, &bytes.Buffer{}
	local := ratelimit.NewLocal(ratelimit.Limit{Events: 1, Window: time.Hour}, c.Now)
	f := ratelimit.NewFallback(s, local, slog.New(slog.NewTextHandler(log, nil)), c.Now)
	for range 5 {
		require.True(t, take(t, f, "a").Allowed)
	}
	s.err = errors.New("connection refused")
	require.True(t, take(t, f, "a").Allowed, "the local limiter has not counted yet")
	for range 10 {
		require.False(t, take(t, f, "a").Allowed)
	}
	require.Equal(t, 6, s.asked, "a limiter that failed is left alone for a while")
	c.Advance(3 * time.Second)
	require.False(t, take(t, f, "a").Allowed)
	require.Equal(t, 7, s.asked)
	require.Equal(t, 1, strings.Count(log.String(), "does not answer"), "one line for one outage")
	s.err = nil
	c.Advance(3 * time.Second)
	require.True(t, take(t, f, "a").Allowed)
	require.Contains(t, log.String(), "answers again")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.err = ctx.Err()
	_, err := f.Take(ctx, "a")
	require.ErrorIs(t, err, context.Canceled)
}
