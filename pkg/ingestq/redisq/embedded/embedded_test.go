package embedded_test

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/redisclient"
	pb "github.com/millweir/millweir/proto"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// start serves and returns a member; all ends with the test.
func start(t testing.TB) *redisq.Queue {
	t.Helper()
	url, stop, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(stop)
	client, err := redisclient.New(url)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	cfg := redisq.NewDefaultConfig(url)
	require.NoError(t, cfg.Validate())
	return redisq.New(client, cfg, slog.New(slog.DiscardHandler), time.Now, nil)
}

// background runs what a worker runs, until the test ends.
func background(t testing.TB, q *redisq.Queue, got chan<- time.Time) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = q.Run(ctx) })
	wg.Go(func() {
		for ctx.Err() == nil {
			some, _ := q.Read(ctx, 10, time.Second)
			for range some {
				got <- time.Now()
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// TestPublishWakesTheReader: an emulated BLOCK that looked only now and then would cost each upload its interval.
func TestPublishWakesTheReader(t *testing.T) {
	q := start(t)
	got := make(chan time.Time, 1)
	background(t, q, got)
	var took []time.Duration
	for range 60 {
		begin := time.Now()
		_, err := q.Publish(t.Context(), []*pb.TaskEnvelope{{TaskId: "t"}})
		require.NoError(t, err)
		select {
		case at := <-got:
			took = append(took, at.Sub(begin))
		case <-time.After(time.Minute):
			t.Fatal("not delivered")
		}
	}
	slices.Sort(took)
	t.Logf("publish to read: p50 %s, max %s", took[len(took)/2], took[len(took)-1])
	require.Less(t, took[len(took)/2], 250*time.Millisecond, "a quarter of one BLOCK")
}

// TestIdleCostsNothing: a laptop's fan must not hear it. Not parallel: it measures.
func TestIdleCostsNothing(t *testing.T) {
	q := start(t)
	background(t, q, make(chan time.Time, 1))
	runtime.GC()
	share := 1.0
	for range 5 { // what a busy machine adds, it does not add each time
		before, begin := cpu(t), time.Now()
		timer := time.NewTimer(2 * time.Second)
		<-timer.C
		share = min(share, float64(cpu(t)-before)/float64(time.Since(begin)))
		if share < 0.05 {
			break
		}
	}
	t.Logf("idle server, client and reader: %.2f %% of one core", 100*share)
	require.Less(t, share, 0.05)
}

func cpu(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestStopEndsTwice(t *testing.T) {
	url, stop, err := embedded.Start()
	require.NoError(t, err)
	stop()
	stop()
	client, err := redisclient.New(url)
	require.NoError(t, err)
	defer client.Close()
	cfg := redisq.NewDefaultConfig(url)
	require.Error(t, redisq.New(client, cfg, slog.New(slog.DiscardHandler), time.Now, nil).Ping(t.Context()))
}
