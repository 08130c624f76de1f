package tasks_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/tasks"
	pb "github.com/millweir/millweir/proto"
)

// hangingPublisher does not answer while it hangs.
type hangingPublisher struct {
	hangs atomic.Bool
	calls atomic.Int64
	added chan int
}

func (p *hangingPublisher) Publish(ctx context.Context, e []*pb.TaskEnvelope) ([]string, error) {
	p.calls.Add(1)
	if p.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.added <- len(e)
	return make([]string, len(e)), nil
}

// One upload waits for a queue that does not answer; the next ones leave it alone until the loop beside them finds it back.
func TestASilentQueueIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	p := &hangingPublisher{added: make(chan int, 100)}
	store := ingesttest.Options{Deps: func(d *ingest.Deps) { d.Publisher = p }, Config: func(c *ingest.Config) { c.PublishTimeout = time.Millisecond }}
	w := ingesttest.NewWorld(t, store)
	w.Upload("0\n")
	require.Equal(t, 1, <-p.added)
	p.hangs.Store(true)
	for i := range 50 {
		w.Upload(strings.Repeat("x", i+1))
	}
	require.EqualValues(t, 2, p.calls.Load(), "the first of them, and no other")

	// Deliveries are taken up by the receiver's loop. Its first success gives the queue back to the requests.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.App.RunReceiver(ctx) }()
	require.Eventually(t, func() bool { return p.calls.Load() == 3 }, time.Minute, time.Millisecond)
	p.hangs.Store(false)
	w.Upload("again\n")
	require.Equal(t, 1, <-p.added)
	require.Eventually(t, func() bool { return !w.App.Service.Leaves(w.Clock.Now()) }, time.Minute, time.Millisecond)
	before := p.calls.Load()
	w.Upload("and again\n")
	require.Equal(t, before+1, p.calls.Load(), "in the request")
	cancel()
	require.NoError(t, <-done)

	// Without that loop a request tries again after a while.
	p.hangs.Store(true)
	w.Upload("silent\n")
	w.Upload("left alone\n")
	require.Equal(t, before+2, p.calls.Load())
	w.Clock.Advance(tasks.QuietRest)
	w.Upload("tries\n")
	require.Equal(t, before+3, p.calls.Load())
}
