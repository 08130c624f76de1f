package streammq

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// offered is a delivery in the hands of a handler, or of who polled it, with its settlement: one allocation for both.
type offered struct {
	Delivery
	settlement
}

// settlement is how a handler settles a delivery itself.
type settlement struct {
	worker *worker
	parcel *parcel

	mu      sync.Mutex
	busy    bool   // a call is under way
	done    bool   // settled, or taken back
	back    bool   // taken back: the delivery is not this member's any more
	release func() // of a promise: gives its place among the running handlers back
}

// Settle settles a delivery that this member has handed out.
func (s *settlement) Settle(ctx context.Context, d *Delivery, result Result) error {
	doing := fmt.Sprintf("settle message %s of %s", d.ID, d.Topic)
	if err := s.begin(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if bad := s.parcel.bad; bad != nil && result.Outcome == OutcomeRetry {
		result = Fail(bad) // there is no message to run again
	}
	err := s.worker.finish(ctx, s.parcel, d, result, s.worker.ackNow)
	switch {
	case errors.Is(err, errRefused):
		err = fmt.Errorf("%s: %w", doing, ErrNotHeld)
	case err != nil:
		s.end(false)
		return failure(ctx, doing, err)
	}
	s.end(true)
	return err
}

// ackNow acknowledges one delivery, and waits for the answer.
func (w *worker) ackNow(ctx context.Context, h held) error {
	began := w.mq.cfg.Now()
	n, err := w.ack(ctx, []held{h})
	if err != nil {
		w.event(Event{Kind: EventFailed, Of: EventAcked, Count: 1, Err: err})
		return err
	}
	if n != 1 {
		w.event(Event{Kind: EventRefused, Of: EventAcked, Count: 1})
		return errRefused
	}
	w.event(Event{Kind: EventAcked, Count: 1, Took: w.mq.cfg.Now().Sub(began)})
	return nil
}

// offer makes what a handler gets.
func (w *worker) offer(p *parcel) (*Delivery, *settlement) {
	o := &offered{Delivery: *w.delivery(p), settlement: settlement{worker: w, parcel: p}}
	handOut(&o.Delivery, &o.settlement)
	return &o.Delivery, &o.settlement
}

// begin claims the right to settle. Errors: ErrSettled, ErrNotHeld.
func (s *settlement) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.back:
		return ErrNotHeld
	case s.done || s.busy:
		return ErrSettled
	}
	s.busy = true
	return nil
}

// end tells what became of a call; not settled: it may be repeated.
func (s *settlement) end(settled bool) {
	s.mu.Lock()
	s.busy = false
	s.done = s.done || settled
	release := s.release
	if s.done {
		s.release = nil
	}
	done := s.done
	s.mu.Unlock()
	if done && release != nil {
		s.worker.kept(s)
		release()
	}
}

// answered notes the handler's result. It returns true when the worker is to settle the delivery by it, and gives the
// handler's place back, unless the handler will settle it: then end or takeBack does.
func (s *settlement) answered(result Result, release func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done && (s.busy || result.Outcome == OutcomeSettled) {
		s.release = release
		s.worker.promise(s)
		return false
	}
	release()
	mine := !s.done
	s.done = true
	return mine
}

// takeBack ends a promise that was not kept: the delivery stays pending, and is delivered again.
func (s *settlement) takeBack() {
	s.mu.Lock()
	release := s.release
	s.release, s.done, s.back = nil, true, true
	s.mu.Unlock()
	if release != nil {
		release()
	}
}

func (w *worker) promise(s *settlement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.promised[s] = true
}

func (w *worker) kept(s *settlement) {
	w.mu.Lock()
	delete(w.promised, s)
	w.mu.Unlock()
	select {
	case w.freed <- struct{}{}:
	default: // somebody will look anyway
	}
}

// handBack takes all promises back.
func (w *worker) handBack() {
	w.mu.Lock()
	promised := w.promised
	w.promised = map[*settlement]bool{}
	w.mu.Unlock()
	for s := range promised {
		s.takeBack()
	}
}

// roomForPromise waits while a whole batch of deliveries waits for its handlers to settle them: no more are begun.
// Errors: errStopped, or ctx's.
func (w *worker) roomForPromise(ctx context.Context) error {
	for {
		w.mu.Lock()
		n := len(w.promised)
		w.mu.Unlock()
		if n < w.sub.cfg.Batch {
			return nil
		}
		select {
		case <-w.freed:
		case <-w.stopping.Done():
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
