package streammq

import (
	"context"
	"time"
)

// aheadBelow is how long a full batch may take for the next one to be read meanwhile: the read of a batch that takes longer
// is no cost worth hiding, and what is read ahead is handed back at a stop.
const aheadBelow = 100 * time.Millisecond

// ahead is the read of the next batch while the one before is handled, by the owner of a partition that is busy.
// Its read is fenced as any other. A caller that leaves drops it, and begins again with what is pending: that is all
// that was read ahead too, in its order.
type ahead struct {
	answer chan answered // not nil: begun, and neither taken nor dropped
	began  time.Time     // of the batch that is handled
	full   bool          // that batch had all entries that were asked for
	quick  quick
}

type answered struct {
	got fetched
	err error
}

func (a *ahead) begun() bool { return a.answer != nil }

// read takes what was read ahead, or reads.
func (a *ahead) read(ctx context.Context, w *worker) (fetched, error) {
	if a.answer == nil {
		return w.fetch(ctx, w.sub.cfg.Batch)
	}
	answer := <-a.answer
	a.answer = nil
	return answer.got, answer.err
}

// begin reads ahead while a batch of n entries is handled, if the last one was full and quick and this one is full too.
func (a *ahead) begin(ctx context.Context, w *worker, n int) {
	now := w.mq.cfg.Now()
	quick := a.full && now.Sub(a.began) < aheadBelow
	a.began, a.full = now, n == w.sub.cfg.Batch && w.epoch != ""
	if !quick || !a.full {
		return
	}
	a.answer = make(chan answered, 1)
	go func(to chan<- answered) {
		got, err := a.quick.fetch(ctx, &w.reader, w.sub.cfg.Batch)
		to <- answered{got, err}
	}(a.answer)
}

// drop waits for a read that nobody takes: it must be over before the source is read from the beginning.
func (a *ahead) drop(ctx context.Context) {
	if a.answer != nil {
		<-a.answer
		a.answer = nil
	}
	a.quick.end(ctx)
}
