package streammq

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// desk is where the Polls of a Consumer meet the workers of its partitions. Nobody reads ahead: what a worker takes from
// Redis somebody has asked for, so that little is in a buffer when a process dies.
type desk struct {
	mu       sync.Mutex
	want     int // what the waiting Polls ask for
	reserved int // of it, what workers are reading now
	ready    []handed
	line     []*ticket     // workers that may have something, in the order of their coming: so partitions take turns
	news     chan struct{} // closed when something is ready, or a read ended
}

// handed is a delivery that waits for a Poll.
type handed struct {
	delivery *Delivery
	by       any // the worker that brought it
}

// ticket is a worker's place in the line.
type ticket struct {
	most    int
	granted chan int
}

func newDesk() *desk { return &desk{news: make(chan struct{})} }

// poll waits until something is ready, for at most block, and returns at most n deliveries. At the end, and when ctx ends
// early, it still waits a moment for reads under way: what they bring was asked for, and should not lie here.
func (d *desk) poll(ctx context.Context, n int, block, grace time.Duration) []*Delivery {
	d.mu.Lock()
	d.want += n
	d.serve()
	timer := time.NewTimer(block)
	defer timer.Stop()
	ended := ctx.Done()
	for ending, over := false, false; len(d.ready) == 0 && !over && (!ending || d.reserved > 0); {
		news := d.news
		d.mu.Unlock()
		select {
		case <-news:
		case <-ended:
			ending, ended = true, nil
			timer.Reset(grace)
		case <-timer.C:
			over, ending = ending, true
			timer.Reset(grace)
		}
		d.mu.Lock()
	}
	got := min(n, len(d.ready))
	deliveries := make([]*Delivery, got)
	for i := range deliveries {
		deliveries[i] = d.ready[i].delivery
	}
	d.ready = slices.Delete(d.ready, 0, got)
	d.want -= n
	d.serve()
	d.mu.Unlock()
	return deliveries
}

// demand waits until somebody asks, and reserves at most most of that. The caller gives it back by hand.
// Errors: errStopped, or ctx's.
func (d *desk) demand(ctx, stopping context.Context, most int) (int, error) {
	t := &ticket{most: most, granted: make(chan int, 1)}
	d.mu.Lock()
	d.line = append(d.line, t)
	d.serve()
	d.mu.Unlock()
	var err error
	select {
	case n := <-t.granted:
		return n, nil
	case <-stopping.Done():
		err = errStopped
	case <-ctx.Done():
		err = ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.line, t); i >= 0 {
		d.line = slices.Delete(d.line, i, i+1)
		return 0, err
	}
	d.reserved -= <-t.granted // granted meanwhile
	d.serve()
	return 0, err
}

// serve grants what is asked for and not yet being read, first come, first served; the caller holds mu.
func (d *desk) serve() {
	for len(d.line) > 0 {
		n := d.want - d.reserved - len(d.ready)
		if n <= 0 {
			return
		}
		t := d.line[0]
		d.line = d.line[1:]
		n = min(n, t.most)
		d.reserved += n
		t.granted <- n // it has room for one
	}
}

// hand ends a read: what was reserved for it, and what it brought.
func (d *desk) hand(by any, reserved int, deliveries []*Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved -= reserved
	for _, one := range deliveries {
		d.ready = append(d.ready, handed{one, by})
	}
	close(d.news)
	d.news = make(chan struct{})
	d.serve()
}

// drop forgets what a worker has brought and no Poll has taken: it stays pending, for the next owner or the next look.
func (d *desk) drop(by any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready = slices.DeleteFunc(d.ready, func(h handed) bool { return h.by == by })
	d.serve()
}

var errStopped = errors.New("stopped")
