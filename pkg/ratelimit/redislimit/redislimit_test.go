package redislimit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/ratelimit/redislimit"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

func connect(t *testing.T) rueidis.Client {
	t.Helper()
	opt, err := rueidis.ParseURL(labserver.RedisURL(t))
	require.NoError(t, err)
	opt.DisableCache = true
	c, err := rueidis.NewClient(opt)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestProcessesShareALimit(t *testing.T) {
	t.Parallel()
	limit := ratelimit.Limit{Events: 50, Window: time.Hour}
	a := connect(t)
	prefix := t.Name() + ":"
	first, second := redislimit.New(a, prefix, limit), redislimit.New(a, prefix, limit)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		l := first
		if i%2 == 1 {
			l = second
		}
		wg.Go(func() {
			r, err := l.Take(t.Context(), "u")
			if err == nil && r.Allowed {
				allowed.Add(1)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(50), allowed.Load())
	r, err := first.Take(t.Context(), "u")
	require.NoError(t, err)
	require.False(t, r.Allowed)
	require.InDelta(t, (72 * time.Second).Seconds(), r.RetryAfter.Seconds(), 30)
	r, err = first.Take(t.Context(), "v")
	require.NoError(t, err)
	require.True(t, r.Allowed, "keys are apart")
	ttl, err := a.Do(t.Context(), a.B().Pttl().Key(prefix+"v").Build()).AsInt64()
	require.NoError(t, err)
	require.Positive(t, ttl, "a key without an end")
	require.LessOrEqual(t, ttl, limit.Step().Milliseconds()+1)
}

func TestEventsComeBack(t *testing.T) {
	t.Parallel()
	l := redislimit.New(connect(t), t.Name()+":", ratelimit.Limit{Events: 2, Window: 400 * time.Millisecond})
	for range 2 {
		r, err := l.Take(t.Context(), "u")
		require.NoError(t, err)
		require.True(t, r.Allowed)
	}
	require.Eventually(t, func() bool {
		r, err := l.Take(t.Context(), "u")
		return err == nil && r.Allowed
	}, time.Minute, 10*time.Millisecond)
}

func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	c := connect(t)
	l := redislimit.New(c, t.Name()+":", ratelimit.Limit{Events: 1, Window: time.Second})
	require.NoError(t, c.Do(t.Context(), c.B().Lpush().Key(t.Name()+":u").Element("x").Build()).Error())
	_, err := l.Take(t.Context(), "u")
	require.ErrorContains(t, err, fmt.Sprintf("take from %s:u", t.Name()))
	require.Panics(t, func() { redislimit.New(c, "", ratelimit.Limit{}) })
}
