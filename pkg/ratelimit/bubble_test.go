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

func (d *stalled) Spend(ctx context.Context, _ string, _ time.Duration, _ ...int64) (time.Duration, error) {
	d.asked.Add(1)
	if d.away.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return 0, nil
}

// A shared limiter that says nothing costs an upload a quarter of a second, and only those that ask at that moment.
func TestSilentSharedLimiterDelaysFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, log := &stalled{}, &bytes.Buffer{}
		local := ratelimit.NewLocal(nil, ratelimit.Limit{Events: 1000, Window: time.Hour})
		f := ratelimit.NewFallback(d, local, slog.New(slog.NewTextHandler(log, nil)), nil)
		d.away.Store(true)
		began := time.Now()
		var all sync.WaitGroup
		for range 20 { // together, before any of them knows
			all.Go(func() { _, _ = f.Spend(t.Context(), "a", 0, 1) })
		}
		all.Wait()
		require.Equal(t, 250*time.Millisecond, time.Since(began))
		for range 100 {
			require.Zero(t, take(t, f, "a"))
		}
		require.Equal(t, 250*time.Millisecond, time.Since(began), "it is left alone")
		require.EqualValues(t, 20, d.asked.Load())
		<-time.After(2 * time.Second)
		require.Zero(t, take(t, f, "a"))
		require.EqualValues(t, 21, d.asked.Load(), "one upload tries it again")
		d.away.Store(false)
		<-time.After(2 * time.Second)
		require.Zero(t, take(t, f, "a"))
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
		local := ratelimit.NewLocal(nil, ratelimit.Limit{Events: 1, Window: time.Hour})
		f := ratelimit.NewFallback(d, local, slog.New(slog.DiscardHandler), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := f.Spend(ctx, "a", 0, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Millisecond, time.Since(began))
		require.Zero(t, take(t, local, "a"), "its upload was not counted")
	})
}

// Whatever the rhythm and however many ask at once, no window lets through more than twice its limit, and no client
// that waits as long as it was told is refused.
func TestLimitHoldsForManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := ratelimit.Limit{Events: 10, Window: time.Minute}
		l := ratelimit.NewLocal(nil, limit)
		var mu sync.Mutex
		var passed []time.Time
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				<-time.After(time.Duration(i%7) * time.Second)
				for range 5 {
					wait := take(t, l, "a")
					if wait == 0 {
						mu.Lock()
						passed = append(passed, time.Now())
						mu.Unlock()
					}
					<-time.After(wait + time.Second)
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
		wait := take(t, l, "alone")
		for i := range 30 {
			require.Zero(t, wait, fmt.Sprint("event ", i))
			<-time.After(limit.Step())
			wait = take(t, l, "alone")
		}
	})
}
