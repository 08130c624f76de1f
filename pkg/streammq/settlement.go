package streammq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var errNacked = errors.New("not acknowledged by its handler")

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

// Ack settles the delivery as done. A handler that uses Ack, Nack or Reject may call it from any goroutine, before or
// after it has returned; it returns Settled then. The first call counts, its write is fenced as all writes are, and is
// made at once instead of with the rest of the batch. What a Consumer's Poll answered is settled so too.
// Errors: ErrSettled after an earlier call or another result of the handler; ErrNotHeld when the message is another
// member's by now, or is to be delivered again; ctx's, ErrUnavailable and ErrFull, after which the call may be repeated.
func (d *Delivery) Ack(ctx context.Context) error { return d.settle(ctx, Success()) }

// Reply is Ack with a reply to who asked for one; it is sent first. Errors: as of Ack.
func (d *Delivery) Reply(ctx context.Context, payload []byte) error {
	return d.settle(ctx, Replied(payload))
}

// Nack puts the message off, as RetryAfter does: below zero the delay is the policy's, and after the last attempt the
// DeadLetterPolicy decides. Errors: as of Ack.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration) error {
	return d.settle(ctx, RetryAfter(delay, errNacked))
}

// Reject ends the message, as Fail does: no attempt can cure it. Errors: as of Ack.
func (d *Delivery) Reject(ctx context.Context, cause error) error { return d.settle(ctx, Fail(cause)) }

func (d *Delivery) settle(ctx context.Context, result Result) error {
	doing := fmt.Sprintf("settle message %s of %s", d.ID, d.Topic)
	s := d.settlement
	if s == nil {
		return fmt.Errorf("%s: %w: no subscriber or consumer handed it out", doing, ErrNotHeld)
	}
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
	o.Delivery.settlement = &o.settlement
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
