package streammq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// handle runs entries, one after another or in lanes. What it does not come to stays pending. With more it does not wait for the last
// acknowledgements: the caller brings the next entries at once, whose handling learns what became of them.
// Errors: errStopped, errLost, errRefused, or Redis' own.
func (w *worker) handle(ctx context.Context, got fetched, more bool) error {
	w.count(got)
	parcels, err := w.unpack(ctx, got.entries)
	if err != nil {
		return err
	}
	w.opened(got.entries)
	defer w.opened(nil)
	err = w.runAll(ctx, parcels)
	if more && err == nil {
		w.acks.begin(ctx)
		return nil
	}
	w.acks.end(ctx)
	if verdict := w.judge(); err == nil && (w.epoch != "" || !errors.Is(verdict, errRefused)) {
		err = verdict
	}
	return err
}

// judge is what acknowledgements have told meanwhile.
func (w *worker) judge() error {
	refused, err := w.acks.verdict()
	if err == nil && refused {
		return errRefused
	}
	return err
}

// next runs one entry of a batch, unless the batch is to be left. Errors: as of handle.
func (w *worker) next(ctx context.Context, p *parcel, lane int) error {
	if w.stopped() {
		return errStopped
	}
	err := w.one(ctx, p, lane)
	if err == nil {
		err = w.judge()
	}
	// On a single stream each entry has its own fence: one that was claimed away says nothing of the others.
	if errors.Is(err, errRefused) && w.epoch == "" {
		err = nil
	}
	if err == nil {
		w.closed(p.id)
	}
	return err
}

func (w *worker) one(ctx context.Context, p *parcel, lane int) error {
	h := held{p.id, p.deliveries}
	if w.sub.opaque {
		p.bad, p.entry = nil, entry{} // the headers are those of the message, and not for this group
	}
	if p.bad != nil {
		return w.bury(ctx, p, p.attempts, p.bad)
	}
	if w.unanswered(p) {
		return w.buryUnanswered(ctx, p)
	}
	if p.forOthers(w.group) {
		w.acks.add(ctx, h)
		return nil
	}
	if open, err := w.writeStatus(ctx, p, StateProcessing, nil); err != nil {
		return err
	} else if !open { // the acknowledgement was lost
		w.acks.add(ctx, h)
		return nil
	}
	if err := w.roomForPromise(ctx); err != nil {
		return err
	}
	release, err := w.sub.admit(ctx, w.stopping)
	if err != nil {
		return err
	}
	d, s := w.offer(p)
	if w.sub.opaque {
		d.Fields = p.fields
	}
	began := w.mq.cfg.Now()
	w.began[lane].Store(w.mq.elapsed(began))
	result, overdue := w.call(ctx, p, d)
	w.began[lane].Store(0)
	w.event(Event{Kind: EventHandled, Count: 1, Outcome: result.Outcome, Took: w.mq.cfg.Now().Sub(began), Err: result.Err})
	if !s.answered(result, release) {
		return nil
	}
	if result.Outcome == OutcomeSuccess && result.Reply == nil && !w.hasStatus(p) {
		w.acks.add(ctx, h)
		return nil
	}
	ctx, cancel := writing(ctx)
	defer cancel()
	if overdue {
		if _, err := w.writeStatus(ctx, p, StateFailed, ErrNoReply); err != nil {
			return err
		}
		return w.settle(ctx, p, d, result, w.ackLater)
	}
	return w.finish(ctx, p, d, result, w.ackLater)
}

// ackLater acknowledges with the others of the batch.
func (w *worker) ackLater(ctx context.Context, h held) error {
	w.acks.add(ctx, h)
	return nil
}

// finish writes the status that a result means, and settles the delivery; ack acknowledges what needs no more.
func (w *worker) finish(ctx context.Context, p *parcel, d *Delivery, result Result, ack func(context.Context, held) error) (err error) {
	if result.Outcome == OutcomeSuccess {
		_, err = w.writeStatus(ctx, p, StateCompleted, nil)
	} else {
		_, err = w.writeStatus(ctx, p, StateFailed, result.reason())
	}
	if err != nil {
		return err
	}
	return w.settle(ctx, p, d, result, ack)
}

// call runs the handler; a panic is a failed attempt. A request is overdue, and not run, when nobody waits for its reply any more.
func (w *worker) call(ctx context.Context, p *parcel, d *Delivery) (result Result, overdue bool) {
	if limit := w.sub.cfg.HandlerTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	defer func() {
		if r := recover(); r != nil {
			stack := debug.Stack()
			result = Retry(&PanicError{Value: r, Stack: stack})
			w.mq.cfg.Log.ErrorContext(ctx, "streammq: handler panicked", slog.String("stream", w.src.stream()),
				slog.String("id", d.ID), slog.Any("panic", r), slog.String("stack", string(stack)))
		}
	}()
	ctx, inTime, cancel := w.forReply(ctx, p, d)
	defer cancel()
	if !inTime {
		return Success(), true
	}
	return w.sub.cfg.Handler(ctx, d), false
}

func (w *worker) settle(ctx context.Context, p *parcel, d *Delivery, result Result, ack func(context.Context, held) error) error {
	h := held{p.id, p.deliveries}
	if err := w.respond(ctx, p, d, result); err != nil {
		return err
	}
	switch result.Outcome {
	case OutcomeSuccess:
		return ack(ctx, h)
	case OutcomeDeadLetter:
		return w.bury(ctx, p, d.Attempt, result.Err)
	case OutcomeRetry:
		if !w.sub.cfg.Retry.exhausted(d) {
			return w.putOff(ctx, p, d, result)
		}
	case OutcomeFail:
	case OutcomeSettled: // of a handler that has settled it, or will
		return nil
	default: // a handler's mistake must not lose the message
		result.Err = fmt.Errorf("unknown outcome %q: %w", result.Outcome, result.Err)
	}
	if w.sub.cfg.DeadLetters == DeadLetterDrop {
		w.event(Event{Kind: EventDropped, Count: 1, Err: result.Err})
		return ack(ctx, h)
	}
	return w.bury(ctx, p, d.Attempt, result.Err)
}

func (w *worker) putOff(ctx context.Context, p *parcel, d *Delivery, result Result) error {
	delay := result.Delay
	if delay < 0 {
		delay = w.sub.cfg.Retry.delay(d.Attempt)
	}
	var done bool
	var err error
	// A message that is added again is a new entry, which a claimer does not read; perhaps no reader is alive.
	// And of what is added again FastStream's groups would not know that it is not for them.
	if w.sub.cfg.RetryMode == RetryInPlace || w.sub.cfg.Role == RoleClaim || p.entry.format != FormatOwn {
		done, err = w.retryInPlace(ctx, held{p.id, p.deliveries}, p.attempts+1, delay)
	} else {
		done, err = w.retryLater(ctx, held{p.id, p.deliveries}, p.entry, d.Attempt, delay)
		w.sub.wakeMover(delay)
	}
	return w.settled(EventRetried, done, err)
}

func (w *worker) bury(ctx context.Context, p *parcel, failed int, cause error) error {
	done, err := w.deadLetter(ctx, p, failed, cause)
	return w.settled(EventDead, done, err)
}

// unanswered tells that an entry was delivered more often than a group's members may leave without an outcome.
func (w *worker) unanswered(p *parcel) bool {
	limit := w.sub.cfg.MaxUnanswered
	return limit > 0 && p.deliveries-int64(p.attempts) > int64(limit)
}

func (w *worker) buryUnanswered(ctx context.Context, p *parcel) error {
	cause := fmt.Errorf("%w: %d times", errUnanswered, w.sub.cfg.MaxUnanswered)
	if _, err := w.writeStatus(ctx, p, StateFailed, cause); err != nil {
		return err
	}
	return w.bury(ctx, p, p.entry.retryCount+p.attempts, cause)
}

func (w *worker) settled(kind EventKind, done bool, err error) error {
	if err != nil {
		w.event(Event{Kind: EventFailed, Of: kind, Count: 1, Err: err})
		return err
	}
	if !done {
		w.event(Event{Kind: EventRefused, Of: kind, Count: 1})
		return errRefused
	}
	w.event(Event{Kind: kind, Count: 1})
	return nil
}

// runAll runs the entries of a batch: one after another, or with Concurrency in lanes beside each other. It returns
// when no handler runs any more. Errors: the first one, as of handle.
func (w *worker) runAll(ctx context.Context, parcels []parcel) error {
	if len(w.began) == 1 || len(parcels) < 2 {
		for i := range parcels {
			if err := w.next(ctx, &parcels[i], 0); err != nil {
				return err
			}
		}
		return nil
	}
	chains := chainsOf(parcels)
	var taken atomic.Int64
	var failed atomic.Pointer[error]
	var lanes sync.WaitGroup
	for lane := range min(len(w.began), len(chains)) {
		lanes.Go(func() {
			for i := taken.Add(1) - 1; i < int64(len(chains)); i = taken.Add(1) - 1 {
				for _, p := range chains[i] {
					if failed.Load() != nil {
						return
					}
					if err := w.next(ctx, p, lane); err != nil {
						failed.CompareAndSwap(nil, &err)
						return
					}
				}
			}
		})
	}
	lanes.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// chainsOf are the entries of each key, in their order: a chain is run by one lane. An entry without a key, or one that
// cannot be read, is a chain of its own. The chains come in the order of their first entries.
func chainsOf(parcels []parcel) [][]*parcel {
	var chains [][]*parcel
	at := make(map[string]int, len(parcels))
	for i := range parcels {
		p := &parcels[i]
		key := p.entry.key
		if n, ok := at[key]; ok && key != "" {
			chains[n] = append(chains[n], p)
			continue
		}
		at[key] = len(chains)
		chains = append(chains, []*parcel{p})
	}
	return chains
}

// opened notes what was read, for those who keep it from being taken for forgotten.
func (w *worker) opened(entries []raw) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = w.open[:0]
	for _, e := range entries {
		w.open = append(w.open, held{e.id, e.deliveries})
	}
}

// closed takes one of these out: the first, or with lanes one near it.
func (w *worker) closed(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.open, func(h held) bool { return h.id == id }); i == 0 {
		w.open = w.open[1:]
	} else if i > 0 {
		w.open = slices.Delete(w.open, i, i+1)
	}
}

// stillOpen are the deliveries that this worker answers for: those read, and those that their handlers will settle.
func (w *worker) stillOpen() []held {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := append([]held(nil), w.open...)
	for s := range w.promised {
		open = append(open, held{s.parcel.id, s.parcel.deliveries})
	}
	return open
}

// longest is the time, by MQ.elapsed, when the handler began that has run for longest; 0: none runs.
func (w *worker) longest() int64 {
	first := int64(0)
	for i := range w.began {
		if at := w.began[i].Load(); at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}
