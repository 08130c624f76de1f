package pipeline

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// What the runs of one process do at the same time. More of them overlap their stages better; these bounds keep their
// memory, and what they ask of others, independent of their number.
const (
	embedsAtOnce  = 8       // embedding calls
	rowsAtOnce    = 8 << 20 // bytes of text in row transactions
	vectorsAtOnce = 1600    // vectors on their way to the store: four full requests
	// waitReport is how often a run that waits for its turn says so: who only waits must not fail as stalled.
	waitReport = 10 * time.Second
)

// gate lets a bounded amount of something in, in the order of asking. It is safe for concurrent use.
type gate struct {
	free *semaphore.Weighted
	size int64
}

func newGate(size int64) *gate { return &gate{free: semaphore.NewWeighted(size), size: size} }

// enter waits until n fit in, or ctx ends; more than fit at all count as many as fit. Call leave in the end.
// waiting is called now and then meanwhile.
func (g *gate) enter(ctx context.Context, n int, waiting func()) (leave func(), err error) {
	amount := min(max(int64(n), 1), g.size)
	leave = func() { g.free.Release(amount) }
	if g.free.TryAcquire(amount) {
		return leave, nil
	}
	entered := make(chan error, 1)
	go func() { entered <- g.free.Acquire(ctx, amount) }()
	ticker := time.NewTicker(waitReport)
	defer ticker.Stop()
	for {
		select {
		case err := <-entered:
			return leave, err
		case <-ticker.C:
			waiting()
		}
	}
}
