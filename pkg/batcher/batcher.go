// Package batcher forms natural batches: what comes while one batch is being worked on becomes the next one.
//
// Nothing waits for a timer, unless Config.Expect says that there is something to wait for: an item that finds no batch at work
// starts one at once, alone. Under load the batches grow by
// themselves to what comes during one batch's work, so that the fixed cost of a transaction or an fsync is shared.
// Items are worked on in the order of their arrival. Every caller waits for its own items, and that is all the back-pressure
// there is and has to be: what waits is bounded by the callers, a stop that lets them end has drained everything, and an idle
// Batcher has neither a goroutine nor anything to close.
package batcher

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Config says how batches are cut and how many are worked on at once.
type Config struct {
	// Workers is the most batches at work at the same time, at least 1. A further one is begun only when MinConcurrent items wait,
	// or when the youngest one at work has taken longer than MaxWait: a slow batch must not hold everybody up.
	Workers int
	// MinConcurrent is how many items are worth a batch beside another one; 0: as many as Most.
	MinConcurrent int
	// Most is the most items of one batch; 0: no limit.
	Most int
	// MaxWait is how long the waiting look on before they take a free worker; 0: for ever.
	MaxWait time.Duration
	// Expect reports whether more items are on their way beside those that wait; it is called under a lock and must be quick.
	// While it does, what waits is not begun before there are MinConcurrent items or Gather has passed since the oldest came.
	// nil: nothing is waited for.
	Expect func(waiting int) bool
	Gather time.Duration
	// Split reports whether the items of a batch that failed so are to be tried one by one, so that a bad one fails alone;
	// nil: never. A panic always splits.
	Split func(error) bool
}

// WorkFunc works on a batch; its error is that of all its items.
// ctx has the values of the first item's caller and ends when all callers of the batch have gone.
type WorkFunc[T any] func(ctx context.Context, b *Batch[T]) error

// Batcher joins the items of many callers. It is safe for concurrent use; make one with New.
type Batcher[T any] struct {
	cfg  Config
	work WorkFunc[T]

	mu      sync.Mutex
	waiting []*entry[T]
	busy    int       // workers
	begun   time.Time // the youngest of them
	looks   time.Time // when a timer runs out because the waiting lose their longest wait; zero: none
}

// entry is one item and what came of it.
type entry[T any] struct {
	item     T
	call     *call
	came     time.Time
	requeued bool
	finished bool
	err      error
	panicked error
}

// call is one Do: its caller waits until none of its items is left, or goes.
type call struct {
	ctx   context.Context
	left  int
	gone  bool
	done  chan struct{}
	lives []*life // of the batches that have items of it
}

// life ends a batch's context with its last caller.
type life struct {
	callers int
	end     context.CancelFunc
}

// New makes a batcher.
func New[T any](cfg Config, work WorkFunc[T]) *Batcher[T] {
	cfg.Workers = max(cfg.Workers, 1)
	if cfg.MinConcurrent == 0 {
		cfg.MinConcurrent = cfg.Most
	}
	return &Batcher[T]{cfg: cfg, work: work}
}

// Do puts items into the next batches, in their order, and waits until all are done: one error for each item.
// When ctx ends first, its cause is the error of what is not done: items that wait are taken out, and what becomes of those
// at work is not known; they must not be looked at then. A panic over an item that was tried alone goes on in its caller.
func (b *Batcher[T]) Do(ctx context.Context, items ...T) []error {
	if len(items) == 0 {
		return nil
	}
	c := &call{ctx: ctx, left: len(items), done: make(chan struct{})}
	mine := make([]*entry[T], len(items))
	now := time.Now()
	for i, item := range items {
		mine[i] = &entry[T]{item: item, call: c, came: now}
	}
	b.mu.Lock()
	b.waiting = append(b.waiting, mine...)
	b.begin()
	b.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.left > 0 {
		b.leave(c)
	}
	out := make([]error, len(mine))
	for i, e := range mine {
		switch {
		case !e.finished:
			out[i] = context.Cause(ctx)
		case e.panicked != nil:
			panic(e.panicked)
		default:
			out[i] = e.err
		}
	}
	return out
}

// leave takes a caller that goes out of the queue and of the batches at work.
func (b *Batcher[T]) leave(c *call) {
	c.gone = true
	b.waiting = slices.DeleteFunc(b.waiting, func(e *entry[T]) bool { return e.call == c })
	for _, l := range c.lives {
		if l.callers--; l.callers == 0 {
			l.end()
		}
	}
}

// begin starts as many batches as there are items and workers for.
func (b *Batcher[T]) begin() {
	may, wait := b.may()
	for ; may; may, wait = b.may() {
		n := len(b.waiting)
		if b.cfg.Most > 0 {
			n = min(n, b.cfg.Most)
		}
		taken := slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		b.busy++
		b.begun = time.Now()
		go b.run(b.open(taken))
	}
	if at := time.Now().Add(wait); wait > 0 && (b.looks.IsZero() || at.Before(b.looks)) {
		b.looks = at
		time.AfterFunc(wait, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if !time.Now().Before(b.looks) {
				b.looks = time.Time{}
			}
			b.begin()
		})
	}
}

// Look begins what waits if nothing more is on its way. Who finds that Expect has changed its mind calls it.
func (b *Batcher[T]) Look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin()
}

// Waiting is how many items wait for a batch.
func (b *Batcher[T]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// may reports whether the waiting may take a worker now. If not, they may after a time that is above 0, or when something else
// changes. Both come of one look at the clock and at Expect: of two, the first may say "not yet" and the second "not any more".
func (b *Batcher[T]) may() (now bool, wait time.Duration) {
	switch {
	case len(b.waiting) == 0 || b.busy >= b.cfg.Workers:
		return false, 0
	case b.cfg.MinConcurrent > 0 && len(b.waiting) >= b.cfg.MinConcurrent:
		return true, 0
	}
	if b.cfg.Expect != nil {
		if left := b.cfg.Gather - time.Since(b.waiting[0].came); left > 0 && b.cfg.Expect(len(b.waiting)) {
			return false, left
		}
	}
	if b.busy == 0 {
		return true, 0
	}
	left := b.cfg.MaxWait - time.Since(b.begun)
	return b.cfg.MaxWait > 0 && left <= 0, left
}

// open makes a batch of items and gives it its life.
func (b *Batcher[T]) open(taken []*entry[T]) *Batch[T] {
	ctx, end := context.WithCancel(context.WithoutCancel(taken[0].call.ctx))
	l := &life{end: end}
	for _, e := range taken {
		if n := len(e.call.lives); n == 0 || e.call.lives[n-1] != l {
			e.call.lives = append(e.call.lives, l)
			l.callers++
		}
	}
	return &Batch[T]{b: b, ctx: ctx, end: end, entries: taken, free: sync.OnceFunc(b.release)}
}

// release gives a worker to the waiting.
func (b *Batcher[T]) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	b.begin()
}

// run takes a batch to its end and lets its callers return.
func (b *Batcher[T]) run(batch *Batch[T]) {
	defer batch.end()
	b.attempt(batch)
	batch.Release()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range batch.entries {
		if e == nil { // put back: another batch's by now
			continue
		}
		e.finished = true
		if e.call.left--; e.call.left == 0 {
			close(e.call.done)
		}
	}
}

// attempt tries a batch as a whole and, if it is worth it, its items one by one.
func (b *Batcher[T]) attempt(batch *Batch[T]) {
	err, panicked := b.try(batch)
	if len(batch.entries) > 1 && (panicked != nil || err != nil && b.cfg.Split != nil && b.cfg.Split(err)) {
		for i, e := range batch.entries {
			if e == nil {
				continue
			}
			b.attempt(&Batch[T]{b: b, ctx: batch.ctx, entries: batch.entries[i : i+1], free: batch.free})
		}
		return
	}
	for _, e := range batch.entries {
		if e != nil {
			e.err, e.panicked = err, panicked
		}
	}
}

// try works on a batch once; a panic comes back as an error with its stack.
func (b *Batcher[T]) try(batch *Batch[T]) (err, panicked error) {
	defer func() {
		if v := recover(); v != nil {
			panicked = fmt.Errorf("panic over a batch: %v\n%s", v, debug.Stack())
		}
		if err != nil || panicked != nil {
			batch.forget()
		}
	}()
	batch.forget()
	return b.work(batch.ctx, batch), nil
}

// Batch is what is worked on together. It is good until the work on it ends.
type Batch[T any] struct {
	b       *Batcher[T]
	ctx     context.Context
	end     context.CancelFunc
	entries []*entry[T] // nil: put back
	free    func()
}

// Items are the batch's items, in the order of their arrival; to be asked before Release.
func (t *Batch[T]) Items() []T {
	out := make([]T, len(t.entries))
	for i, e := range t.entries {
		out[i] = e.item
	}
	return out
}

// Release lets the next batch begin before the work on this one has ended: the rest of it shares nothing with the next.
// After it the work should not fail: what it put back stays so.
func (t *Batch[T]) Release() {
	t.putBack()
	t.free()
}

// Requeue puts the i-th item back: it leads the next batch. It counts only if the work does not fail.
func (t *Batch[T]) Requeue(i int) { t.entries[i].requeued = true }

// putBack hands the items of Requeue to the next batch, unless nobody waits for them any more.
func (t *Batch[T]) putBack() {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	var again []*entry[T]
	for i, e := range t.entries {
		if e != nil && e.requeued && !e.call.gone {
			e.requeued, t.entries[i] = false, nil
			again = append(again, e)
		}
	}
	t.b.waiting = append(again, t.b.waiting...)
	t.b.begin() // if a worker was freed before
}

// forget takes back what an earlier try said.
func (t *Batch[T]) forget() {
	for _, e := range t.entries {
		if e != nil {
			e.requeued = false
		}
	}
}
