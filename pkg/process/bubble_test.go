package process

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// bubbleRunner is a process without an outside.
func bubbleRunner() (*runner, *Env) {
	env := &Env{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: NewReady(), Stdout: io.Discard}
	env.Ready.Register("all", func(context.Context) error { return nil })
	return &runner{spec: Spec{Name: "test"}, std: IO{Stdout: io.Discard, Stderr: io.Discard}}, env
}

// A stop waits for as long as the parts need to hand back, is not ready from its first instant, and ends all of them.
func TestGracefulStopWaitsForItsParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, env := bubbleRunner()
		ctx, cancel := context.WithCancelCause(t.Context())
		var handedBack atomic.Int64
		part := func(takes time.Duration) Service {
			return ServiceFunc(func(ctx context.Context) error {
				<-ctx.Done()
				if !env.Ready.Draining() {
					t.Error("a part heard of the end before readiness did")
				}
				<-time.After(takes)
				handedBack.Add(1)
				return ctx.Err()
			})
		}
		done := make(chan error, 1)
		go func() {
			done <- p.runBody(ctx, env, func(ctx context.Context, _ *Env) error {
				return RunAll(ctx, part(0), part(10*time.Second), part(time.Second))
			})
		}()
		<-time.After(time.Hour)
		synctest.Wait()
		require.True(t, env.Ready.Check(t.Context()).Ready)
		began := time.Now()
		cancel(&StoppedError{Signal: syscall.SIGTERM})
		synctest.Wait()
		require.False(t, env.Ready.Check(t.Context()).Ready, "at once")
		require.NoError(t, <-done, "a stop that was asked for is no failure")
		require.Equal(t, 10*time.Second, time.Since(began), "the slowest part")
		require.EqualValues(t, 3, handedBack.Load())
	})
}

// One part that fails stops the others, which still hand back what they have.
func TestOneFailedPartStopsTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, env := bubbleRunner()
		boom := errors.New("boom")
		handedBack := false
		err := p.runBody(t.Context(), env, func(ctx context.Context, _ *Env) error {
			return RunAll(ctx,
				ServiceFunc(func(context.Context) error { <-time.After(time.Minute); return boom }),
				ServiceFunc(func(ctx context.Context) error {
					<-ctx.Done()
					<-time.After(5 * time.Second)
					handedBack = true
					return nil
				}))
		})
		require.ErrorIs(t, err, boom)
		require.True(t, handedBack)
		require.True(t, env.Ready.Draining())
	})
}

// A second signal ends a program that does not heed the first, however long it would take.
func TestSecondSignalInTheMiddleOfAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals, release := make(chan os.Signal, 2), make(chan struct{})
		exited := make(chan int, 1)
		go func() {
			supervise(func(ctx context.Context) int {
				<-ctx.Done()
				<-release
				return 0
			}, signals, io.Discard, func(code int) { exited <- code })
		}()
		signals <- syscall.SIGTERM
		<-time.After(time.Hour)
		synctest.Wait()
		require.Empty(t, exited, "one signal waits")
		signals <- syscall.SIGINT
		require.Equal(t, 128+int(syscall.SIGINT), <-exited)
		close(release)
	})
}

// A dependency that hangs makes the process not ready after two seconds, is asked by one goroutine however many probes
// come, and is believed again when it answers.
func TestHangingCheckHoldsOneGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewReady()
		var asked atomic.Int64
		release := make(chan struct{})
		r.Register("database", func(context.Context) error { asked.Add(1); <-release; return nil })
		began := time.Now()
		for range 20 {
			report := r.Check(t.Context())
			require.False(t, report.Ready)
			require.Equal(t, errSlow.Error(), report.Checks[0].Error)
		}
		require.Equal(t, 20*checkTimeout, time.Since(began))
		require.EqualValues(t, 1, asked.Load())
		close(release)
		synctest.Wait()
		require.True(t, r.Check(t.Context()).Ready)
	})
}
