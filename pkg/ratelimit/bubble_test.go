package ratelimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stalled is a shared limiter whose server says nothing while it is away.
type stalled struct {
	away  atomic.Bool
	asked atomic.Int64
}

func (d *stalled) Take(ctx context.Context, _ string) (ratelimit.Result, error) {
	d.asked.Add(1)
	if d.away.Load() {
		<-ctx.Done()
		return ratelimit.Result{}, ctx.Err()
	}
	return ratelimit.Result{Allowed: true}, nil
}

// A shared limiter that says nothing costs an upload a quarter of a second, and only those that ask at that moment.
func TestSilentSharedLimiterDelaysFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, log := &stalled{}, &bytes.Buffer{}
		local := ratelimit.NewLocal(ratelimit.Limit{Events: 1000, Window: time.Hour}, nil)
		f := ratelimit.NewFallback(d, local, slog.New(slog.NewTextHandler(log, nil)), nil)
		d.away.Store(true)
		began := time.Now()
		var all sync.WaitGroup
		for range 20 { // together, before any of them knows
			all.Go(func() { _, _ = f.Take(t.Context(), "a") })
		}
		all.Wait()
		require.Equal(t, 250*time.Millisecond, time.Since(began))
		for range 100 {
			require.True(t, take(t, f, "a").Allowed)
		}
		require.Equal(t, 250*time.Millisecond, time.Since(began), "it is left alone")
		require.EqualValues(t, 20, d.asked.Load())
		<-time.After(2 * time.Second)
		require.True(t, take(t, f, "a").Allowed)
		require.EqualValues(t, 21, d.asked.Load(), "one upload tries it again")
		d.away.Store(false)
		<-time.After(2 * time.Second)
		require.True(t, take(t, f, "a").Allowed)
		require.Equal(t, 1, strings.Count(log.String(), "does not answer"), "one line for one outage")
		require.Equal(t, 1, strings.Count(log.String(), "answers again"))
	})
}

// A client that leaves while the shared limiter is silent is let go at once.
func TestClientLeavesASilentLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &stalled{}
		d.away.Store(true)
		local := ratelimit.NewLocal(ratelimit.Limit{Events: 1, Window: time.Hour}, nil)
		f := ratelimit.NewFallback(d, local, slog.New(slog.DiscardHandler), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := f.Take(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Millisecond, time.Since(began))
		require.True(t, take(t, local, "a").Allowed, "its upload was not counted")
	})
}

// Whatever the rhythm and however many ask at once, no window lets through more than twice its limit, and no client
// that waits as long as it was told is refused.
func TestLimitHoldsForManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := ratelimit.Limit{Events: 10, Window: time.Minute}
		l := ratelimit.NewLocal(limit, nil)
		var mu sync.Mutex
		var passed []time.Time
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				<-time.After(time.Duration(i%7) * time.Second)
				for range 5 {
					r := take(t, l, "a")
					if r.Allowed {
						mu.Lock()
						passed = append(passed, time.Now())
						mu.Unlock()
					}
					<-time.After(r.RetryAfter + time.Second)
				}
			})
		}
		all.Wait()
		for i := range passed {
			n := 0
			for _, at := range passed[i:] {
				if at.Sub(passed[i]) < limit.Window {
					n++
				}
			}
			require.LessOrEqual(t, n, 2*limit.Events)
		}
		require.NotEmpty(t, passed)
		r := take(t, l, "alone")
		for i := range 30 {
			require.True(t, r.Allowed, fmt.Sprint("event ", i))
			<-time.After(limit.Step())
			r = take(t, l, "alone")
		}
	})
}
