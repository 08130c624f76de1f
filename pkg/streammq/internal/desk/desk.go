// Package desk is where those who ask for messages meet those who read them.
package desk

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Desk is where the Polls of a Consumer meet the workers of its partitions. Nobody reads ahead: what a worker takes from
// Redis somebody has asked for, so that little is in a buffer when a process dies.
type Desk struct {
	Mu       sync.Mutex
	want     int // what the waiting Polls ask for
	reserved int // of it, what workers are reading now
	ready    []handed
	Line     []*ticket     // workers that may have something, in the order of their coming: so partitions take turns
	news     chan struct{} // closed when something is ready, or a read ended
}

// mostAsked is what one Poll asks for at the most: a batch of each partition. So what all of them ask for is a number too.
const mostAsked = model.MaxPartitions * model.MaxBatch

// handed is a delivery that waits for a Poll.
type handed struct {
	delivery *model.Delivery
	by       any // the worker that brought it
}

// ticket is a worker's place in the line.
type ticket struct {
	most    int
	granted chan int
}

func NewDesk() *Desk { return &Desk{news: make(chan struct{})} }

// Poll waits until something is ready, for at most block, and returns at most n deliveries. At the end, and when ctx ends
// early, it still waits a moment for reads under way: what they bring was asked for, and should not lie here.
func (d *Desk) Poll(ctx context.Context, n int, block, grace time.Duration) []*model.Delivery {
	n = min(n, mostAsked)
	d.Mu.Lock()
	d.want += n
	d.serve()
	timer := time.NewTimer(block)
	defer timer.Stop()
	ended := ctx.Done()
	for ending, over := false, false; len(d.ready) == 0 && !over && (!ending || d.reserved > 0); {
		news := d.news
		d.Mu.Unlock()
		select {
		case <-news:
		case <-ended:
			ending, ended = true, nil
			timer.Reset(grace)
		case <-timer.C:
			over, ending = ending, true
			timer.Reset(grace)
		}
		d.Mu.Lock()
	}
	got := min(n, len(d.ready))
	deliveries := make([]*model.Delivery, got)
	for i := range deliveries {
		deliveries[i] = d.ready[i].delivery
	}
	d.ready = slices.Delete(d.ready, 0, got)
	d.want -= n
	d.serve()
	d.Mu.Unlock()
	return deliveries
}

// Demand waits until somebody asks, and reserves at most most of that. The caller gives it back by hand.
// Errors: errStopped, or ctx's.
func (d *Desk) Demand(ctx, stopping context.Context, most int) (int, error) {
	t := &ticket{most: most, granted: make(chan int, 1)}
	d.Mu.Lock()
	d.Line = append(d.Line, t)
	d.serve()
	d.Mu.Unlock()
	var err error
	select {
	case n := <-t.granted:
		return n, nil
	case <-stopping.Done():
		err = ErrStopped
	case <-ctx.Done():
		err = ctx.Err()
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if i := slices.Index(d.Line, t); i >= 0 {
		d.Line = slices.Delete(d.Line, i, i+1)
		return 0, err
	}
	d.reserved -= <-t.granted // granted meanwhile
	d.serve()
	return 0, err
}

// serve grants what is asked for and not yet being read, first come, first served; the caller holds mu.
func (d *Desk) serve() {
	for len(d.Line) > 0 {
		n := d.want - d.reserved - len(d.ready)
		if n <= 0 {
			return
		}
		t := d.Line[0]
		d.Line = d.Line[1:]
		n = min(n, t.most)
		d.reserved += n
		t.granted <- n // it has room for one
	}
}

// Hand ends a read: what was reserved for it, and what it brought.
func (d *Desk) Hand(by any, reserved int, deliveries []*model.Delivery) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	d.reserved -= reserved
	for _, one := range deliveries {
		d.ready = append(d.ready, handed{one, by})
	}
	close(d.news)
	d.news = make(chan struct{})
	d.serve()
}

// Drop forgets what a worker has brought and no Poll has taken: it stays pending, for the next owner or the next look.
func (d *Desk) Drop(by any) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	d.ready = slices.DeleteFunc(d.ready, func(h handed) bool { return h.by == by })
	d.serve()
}

var ErrStopped = errors.New("stopped")
