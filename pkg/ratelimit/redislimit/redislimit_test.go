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
			wait, err := l.Spend(t.Context(), "u", 0, 1)
			if err == nil && wait == 0 {
				allowed.Add(1)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(50), allowed.Load())
	wait, err := first.Spend(t.Context(), "u", 0, 1)
	require.NoError(t, err)
	require.InDelta(t, (72 * time.Second).Seconds(), wait.Seconds(), 30)
	wait, err = first.Spend(t.Context(), "v", 0, 1)
	require.NoError(t, err)
	require.Zero(t, wait, "keys are apart")
	ttl, err := a.Do(t.Context(), a.B().Pttl().Key(prefix+"v").Build()).AsInt64()
	require.NoError(t, err)
	require.Positive(t, ttl, "a key without an end")
	require.LessOrEqual(t, ttl, limit.Step().Milliseconds()+1)
}

func TestEventsComeBack(t *testing.T) {
	t.Parallel()
	l := redislimit.New(connect(t), t.Name()+":", ratelimit.Limit{Events: 2, Window: 400 * time.Millisecond})
	for range 2 {
		wait, err := l.Spend(t.Context(), "u", 0, 1)
		require.NoError(t, err)
		require.Zero(t, wait)
	}
	require.Eventually(t, func() bool {
		wait, err := l.Spend(t.Context(), "u", 0, 1)
		return err == nil && wait == 0
	}, time.Minute, 10*time.Millisecond)
}

func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	c := connect(t)
	l := redislimit.New(c, t.Name()+":", ratelimit.Limit{Events: 1, Window: time.Second})
	require.NoError(t, c.Do(t.Context(), c.B().Lpush().Key(t.Name()+":u").Element("x").Build()).Error())
	_, err := l.Spend(t.Context(), "u", 0, 1)
	require.ErrorContains(t, err, fmt.Sprintf("take from %s:u", t.Name()))
	require.Panics(t, func() { redislimit.New(c, "", ratelimit.Limit{}) })
}

// Both forms of the limiter give the same waits; Redis is asked an hour apart at most by its own clock, so its waits may only be shorter.
func TestItCountsAsTheLocalOneDoes(t *testing.T) {
	t.Parallel()
	limits := []ratelimit.Limit{ratelimit.PerMinute(2), {Events: 1000, Window: 1000 * time.Hour}}
	began := time.Now()
	local := ratelimit.NewLocal(func() time.Time { return began }, limits...)
	shared := redislimit.New(connect(t), t.Name()+":", limits...)
	for i, s := range []struct {
		most  time.Duration
		costs []int64
	}{
		{0, []int64{1, 5000}},              // more than the limit: taken, the next waits
		{0, []int64{1, 1}},                 // refused
		{5000 * time.Hour, []int64{1, 10}}, // taken, to be waited for
		{ratelimit.Always, []int64{1, 0}},  // only the first limit counts
		{ratelimit.Always, []int64{0, -4000}},
		{2 * time.Hour, []int64{2, 1}}, // refused still
		{ratelimit.Always, []int64{3, 7}},
		{ratelimit.Always, []int64{1, 1}},
	} {
		want, err := local.Spend(t.Context(), "k", s.most, s.costs...)
		require.NoError(t, err)
		got, err := shared.Spend(t.Context(), "k", s.most, s.costs...)
		require.NoError(t, err)
		require.LessOrEqual(t, got, want+time.Millisecond, i)
		require.GreaterOrEqual(t, got, want-time.Since(began)-time.Millisecond, i)
		require.Equal(t, want <= s.most, got <= s.most, i)
	}
}
