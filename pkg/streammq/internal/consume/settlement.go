package consume

import (
	"context"

	"github.com/millweir/millweir/pkg/streammq/internal/desk"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// offered is a delivery in the hands of a handler, or of who polled it, with its settlement: one allocation for both.
type offered struct {
	model.Delivery
	settlement
}

// offer makes what a handler gets.
func (w *Worker) offer(p *fence.Parcel) (*model.Delivery, *settlement) {
	o := &offered{Delivery: *w.Delivery(p), settlement: settlement{worker: w, parcel: p}}
	model.HandOut(&o.Delivery, &o.settlement)
	return &o.Delivery, &o.settlement
}

// begin claims the right to settle. Errors: ErrSettled, ErrNotHeld.
func (s *settlement) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.back:
		return model.ErrNotHeld
	case s.done || s.busy:
		return model.ErrSettled
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
func (s *settlement) answered(result model.Result, release func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done && (s.busy || result.Outcome == model.OutcomeSettled) {
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

func (h *inHand) promise(s *settlement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.promised[s] = true
}

func (h *inHand) kept(s *settlement) {
	h.mu.Lock()
	delete(h.promised, s)
	h.mu.Unlock()
	select {
	case h.freed <- struct{}{}:
	default: // somebody will look anyway
	}
}

// handBack takes all promises back.
func (h *inHand) handBack() {
	h.mu.Lock()
	promised := h.promised
	h.promised = map[*settlement]bool{}
	h.mu.Unlock()
	for s := range promised {
		s.takeBack()
	}
}

// roomForPromise waits while a whole batch of deliveries waits for its handlers to settle them: no more are begun.
// Errors: errStopped, or ctx's.
func (w *Worker) roomForPromise(ctx context.Context) error {
	for {
		w.mu.Lock()
		n := len(w.promised)
		w.mu.Unlock()
		if n < w.cfg.Batch {
			return nil
		}
		select {
		case <-w.freed:
		case <-w.stopping.Done():
			return desk.ErrStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
