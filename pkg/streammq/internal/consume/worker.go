package consume

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/desk"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

var (
	errRefused = errors.New("write refused")
	errHeir    = errors.New("entries of another consumer are this one's now")

	ErrUnanswered = errors.New("delivered without an answer: its members died, hung or lost their lease")
)

const nudgeAfter = 2 * time.Millisecond // the end of a block, which is rounded to ms

// inHand is what a worker has read and not yet settled.
type inHand struct {
	mu       sync.Mutex
	open     []fence.Held         // read, and not yet handled
	promised map[*settlement]bool // handled, and to be settled by their handler
	freed    chan struct{}        // has room for one: a promise was kept
}

// Worker runs the messages of one source, in the order of the stream or that of their keys, as long as it owns it.
type Worker struct {
	fence.Reader
	cfg    *SubscriberConfig
	member *Subscriber
	acks   *fence.Acks

	stopping context.Context    // a signal: end after the current message, the rest stays pending
	Stop     context.CancelFunc // gives that signal
	cut      context.CancelFunc // ends the handlers' ctx: the source is lost, or longest wait is over
	Done     chan struct{}
	Ended    func(context.Context) // before done

	renewed time.Time      // last answer that the lease is ours; only the member's loop touches it
	lost    atomic.Bool    // lose was called
	Resting atomic.Bool    // it waits for Resume
	heir    atomic.Bool    // entries of another consumer were moved to this one
	began   []atomic.Int64 // by lane: when the running handler began, by MQ.elapsed; 0: none runs

	inHand
}

// Lose ends the current message too: its writes would be refused.
func (w *Worker) Lose() {
	w.lost.Store(true)
	w.Stop()
	w.cut()
}

func (w *Worker) Stopped() bool { return w.stopping.Err() != nil }

// wait ends early when the worker is to stop.
func (w *Worker) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.stopping.Done():
	case <-ctx.Done():
	}
}

func (w *Worker) count(got fence.Fetched) {
	if n := len(got.Entries); n > 0 {
		w.event(model.Event{Kind: model.EventConsumed, Count: n})
	}
	if got.Lost > 0 {
		w.event(model.Event{Kind: model.EventLost, Count: got.Lost})
		w.Mq.Cfg.Log.Warn("streammq: pending entries have no data any more", slog.String("stream", w.Src.Stream()), slog.Int("entries", got.Lost))
	}
}

// settlement is how a handler settles a delivery itself.
type settlement struct {
	worker *Worker
	parcel *fence.Parcel

	mu      sync.Mutex
	busy    bool   // a call is under way
	done    bool   // settled, or taken back
	back    bool   // taken back: the delivery is not this member's any more
	release func() // of a promise: gives its place among the running handlers back
}

func (w *Worker) event(e model.Event) {
	e.Topic, e.Partition, e.Group, e.Member = w.Src.Topic, w.Src.Part, w.Group, w.cfg.Member
	w.Mq.Observe(e)
}

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
