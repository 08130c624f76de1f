package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/desk"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// Handle runs entries, one after another or in lanes. What it does not come to stays pending. With more it does not wait for the last
// acknowledgements: the caller brings the next entries at once, whose handling learns what became of them.
// Errors: errStopped, errLost, errRefused, or Redis' own.
func (w *Worker) Handle(ctx context.Context, got fence.Fetched, more bool) error {
	w.count(got)
	parcels, err := w.Unpack(ctx, got.Entries)
	if err != nil {
		return err
	}
	w.opened(got.Entries)
	defer w.opened(nil)
	err = w.runAll(ctx, parcels)
	if more && err == nil {
		w.acks.Begin(ctx)
		return nil
	}
	w.acks.End(ctx)
	if verdict := w.judge(); err == nil && (w.Epoch != "" || !errors.Is(verdict, errRefused)) {
		err = verdict
	}
	return err
}

// judge is what acknowledgements have told meanwhile.
func (w *Worker) judge() error {
	refused, err := w.acks.Verdict()
	if err == nil && refused {
		return errRefused
	}
	return err
}

// next runs one entry of a batch, unless the batch is to be left. Errors: as of handle.
func (w *Worker) next(ctx context.Context, p *fence.Parcel, lane int) error {
	if w.Stopped() {
		return desk.ErrStopped
	}
	err := w.one(ctx, p, lane)
	if err == nil {
		err = w.judge()
	}
	// On a single stream each entry has its own fence: one that was claimed away says nothing of the others.
	if errors.Is(err, errRefused) && w.Epoch == "" {
		err = nil
	}
	if err == nil {
		w.closed(p.Id)
	}
	return err
}

func (w *Worker) one(ctx context.Context, p *fence.Parcel, lane int) error {
	h := fence.Held{Id: p.Id, Deliveries: p.Deliveries}
	if w.member.opaque {
		p.Bad, p.Entry = nil, wire.Entry{} // the headers are those of the message, and not for this group
	}
	if p.Bad != nil {
		return w.bury(ctx, p, p.Attempts, p.Bad)
	}
	if w.unanswered(p) {
		return w.buryUnanswered(ctx, p)
	}
	if p.ForOthers(w.Group) {
		w.acks.Add(ctx, h)
		return nil
	}
	if open, err := w.WriteStatus(ctx, p, model.StateProcessing, nil); err != nil {
		return err
	} else if !open { // the acknowledgement was lost
		w.acks.Add(ctx, h)
		return nil
	}
	if err := w.roomForPromise(ctx); err != nil {
		return err
	}
	release, err := w.member.admit(ctx, w.stopping)
	if err != nil {
		return err
	}
	d, s := w.offer(p)
	if w.member.opaque {
		d.Fields = p.Fields
	}
	began := w.Mq.Cfg.Now()
	w.began[lane].Store(w.Mq.Elapsed(began))
	result, overdue := w.call(ctx, p, d)
	w.began[lane].Store(0)
	w.event(model.Event{Kind: model.EventHandled, Count: 1, Outcome: result.Outcome, Took: w.Mq.Cfg.Now().Sub(began), Err: result.Err})
	if !s.answered(result, release) {
		return nil
	}
	if result.Outcome == model.OutcomeSuccess && result.Reply == nil && !w.HasStatus(p) {
		w.acks.Add(ctx, h)
		return nil
	}
	ctx, cancel := core.Writing(ctx)
	defer cancel()
	if overdue {
		if _, err := w.WriteStatus(ctx, p, model.StateFailed, model.ErrNoReply); err != nil {
			return err
		}
		return w.settle(ctx, p, d, result, w.ackLater)
	}
	return w.finish(ctx, p, d, result, w.ackLater)
}

// ackLater acknowledges with the others of the batch.
func (w *Worker) ackLater(ctx context.Context, h fence.Held) error {
	w.acks.Add(ctx, h)
	return nil
}

// finish writes the status that a result means, and settles the delivery; ack acknowledges what needs no more.
func (w *Worker) finish(ctx context.Context, p *fence.Parcel, d *model.Delivery, result model.Result, ack func(context.Context, fence.Held) error) error {
	state, cause := model.StateCompleted, error(nil)
	if result.Outcome != model.OutcomeSuccess {
		state, cause = model.StateFailed, model.Reason(result)
	}
	if _, err := w.WriteStatus(ctx, p, state, cause); err != nil {
		return err
	}
	return w.settle(ctx, p, d, result, ack)
}

// call runs the handler; a panic is a failed attempt. A request is overdue, and not run, when nobody waits for its reply any more.
func (w *Worker) call(ctx context.Context, p *fence.Parcel, d *model.Delivery) (result model.Result, overdue bool) {
	if limit := w.cfg.HandlerTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	defer func() {
		if r := recover(); r != nil {
			stack := debug.Stack()
			result = model.Retry(&model.PanicError{Value: r, Stack: stack})
			w.Mq.Cfg.Log.ErrorContext(ctx, "streammq: handler panicked", slog.String("stream", w.Src.Stream()),
				slog.String("id", d.ID), slog.Any("panic", r), slog.String("stack", string(stack)))
		}
	}()
	ctx, inTime, cancel := w.forReply(ctx, p, d)
	defer cancel()
	if !inTime {
		return model.Success(), true
	}
	return w.cfg.Handler(ctx, d), false
}

func (w *Worker) settle(ctx context.Context, p *fence.Parcel, d *model.Delivery, result model.Result, ack func(context.Context, fence.Held) error) error {
	h := fence.Held{Id: p.Id, Deliveries: p.Deliveries}
	if err := w.Respond(ctx, p, d, result); err != nil {
		return err
	}
	switch result.Outcome {
	case model.OutcomeSuccess:
		return ack(ctx, h)
	case model.OutcomeDeadLetter:
		return w.bury(ctx, p, d.Attempt, result.Err)
	case model.OutcomeRetry:
		if !model.Exhausted(w.cfg.Retry, d) {
			return w.putOff(ctx, p, d, result)
		}
	case model.OutcomeFail:
	case model.OutcomeSettled: // of a handler that has settled it, or will
		return nil
	default: // a handler's mistake must not lose the message
		result.Err = fmt.Errorf("unknown outcome %q: %w", result.Outcome, result.Err)
	}
	if w.cfg.DeadLetters == model.DeadLetterDrop {
		w.event(model.Event{Kind: model.EventDropped, Count: 1, Err: result.Err})
		return ack(ctx, h)
	}
	return w.bury(ctx, p, d.Attempt, result.Err)
}

func (w *Worker) putOff(ctx context.Context, p *fence.Parcel, d *model.Delivery, result model.Result) error {
	delay := result.Delay
	if delay < 0 {
		delay = model.Delay(w.cfg.Retry, d.Attempt)
	}
	var done bool
	var err error
	// A message that is added again is a new entry, which a claimer does not read; perhaps no reader is alive.
	// And of what is added again FastStream's groups would not know that it is not for them.
	if w.cfg.RetryMode == model.RetryInPlace || w.cfg.Role == RoleClaim || p.Entry.Format != wire.FormatOwn {
		done, err = w.RetryInPlace(ctx, fence.Held{Id: p.Id, Deliveries: p.Deliveries}, p.Attempts+1, delay)
	} else {
		done, err = w.RetryLater(ctx, fence.Held{Id: p.Id, Deliveries: p.Deliveries}, p.Entry, d.Attempt, delay)
		WakeMover(w.member, delay)
	}
	return w.settled(model.Event{Kind: model.EventRetried, Count: 1}, done, err)
}

func (w *Worker) bury(ctx context.Context, p *fence.Parcel, failed int, cause error) error {
	done, err := w.DeadLetter(ctx, p, failed, cause)
	return w.settled(model.Event{Kind: model.EventDead, Count: 1}, done, err)
}

// unanswered tells that an entry was delivered more often than a group's members may leave without an outcome.
func (w *Worker) unanswered(p *fence.Parcel) bool {
	limit := w.cfg.MaxUnanswered
	return limit > 0 && p.Deliveries-int64(p.Attempts) > int64(limit)
}

func (w *Worker) buryUnanswered(ctx context.Context, p *fence.Parcel) error {
	cause := fmt.Errorf("%w: %d times", ErrUnanswered, w.cfg.MaxUnanswered)
	if _, err := w.WriteStatus(ctx, p, model.StateFailed, cause); err != nil {
		return err
	}
	return w.bury(ctx, p, p.Entry.RetryCount+p.Attempts, cause)
}

// settled tells of what was to be, or why it is not.
func (w *Worker) settled(e model.Event, done bool, err error) error {
	switch {
	case err != nil:
		e = model.Event{Kind: model.EventFailed, Of: e.Kind, Count: 1, Err: err}
	case !done:
		e, err = model.Event{Kind: model.EventRefused, Of: e.Kind, Count: 1}, errRefused
	}
	w.event(e)
	return err
}

// runAll runs the entries of a batch: one after another, or with Concurrency in lanes beside each other. It returns
// when no handler runs any more. Errors: the first one, as of handle.
func (w *Worker) runAll(ctx context.Context, parcels []fence.Parcel) error {
	if len(w.began) == 1 || len(parcels) < 2 {
		for i := range parcels {
			if err := w.next(ctx, &parcels[i], 0); err != nil {
				return err
			}
		}
		return nil
	}
	chains := ChainsOf(parcels)
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

// ChainsOf are the entries of each key, in their order: a chain is run by one lane. An entry without a key, or one that
// cannot be read, is a chain of its own. The chains come in the order of their first entries.
func ChainsOf(parcels []fence.Parcel) [][]*fence.Parcel {
	var chains [][]*fence.Parcel
	at := make(map[string]int, len(parcels))
	for i := range parcels {
		p := &parcels[i]
		key := p.Entry.Key
		if n, ok := at[key]; ok && key != "" {
			chains[n] = append(chains[n], p)
			continue
		}
		at[key] = len(chains)
		chains = append(chains, []*fence.Parcel{p})
	}
	return chains
}

// opened notes what was read, for those who keep it from being taken for forgotten.
func (h *inHand) opened(entries []wire.Raw) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = h.open[:0]
	for _, e := range entries {
		h.open = append(h.open, fence.Held{Id: e.Id, Deliveries: e.Deliveries})
	}
}

// closed takes one of these out: the first, or with lanes one near it.
func (h *inHand) closed(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.open, func(one fence.Held) bool { return one.Id == id }); i == 0 {
		h.open = h.open[1:]
	} else if i > 0 {
		h.open = slices.Delete(h.open, i, i+1)
	}
}

// stillOpen are the deliveries that this worker answers for: those read, and those that their handlers will settle.
func (h *inHand) stillOpen() []fence.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := slices.Clone(h.open)
	for s := range h.promised {
		open = append(open, fence.Held{Id: s.parcel.Id, Deliveries: s.parcel.Deliveries})
	}
	return open
}

// longest is the time, by MQ.elapsed, when the handler began that has run for longest; 0: none runs.
func (w *Worker) longest() int64 {
	first := int64(0)
	for i := range w.began {
		if at := w.began[i].Load(); at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// Settle settles a delivery that this member has handed out.
func (s *settlement) Settle(ctx context.Context, d *model.Delivery, result model.Result) error {
	doing := fmt.Sprintf("settle message %s of %s", d.ID, d.Topic)
	if err := s.begin(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if bad := s.parcel.Bad; bad != nil && result.Outcome == model.OutcomeRetry {
		result = model.Fail(bad) // there is no message to run again
	}
	err := s.worker.finish(ctx, s.parcel, d, result, s.worker.ackNow)
	switch {
	case errors.Is(err, errRefused):
		err = fmt.Errorf("%s: %w", doing, model.ErrNotHeld)
	case err != nil:
		s.end(false)
		return model.Failure(ctx, doing, err)
	}
	s.end(true)
	return err
}

// ackNow acknowledges one delivery, and waits for the answer.
func (w *Worker) ackNow(ctx context.Context, h fence.Held) error {
	began := w.Mq.Cfg.Now()
	n, err := w.Ack(ctx, []fence.Held{h})
	return w.settled(model.Event{Kind: model.EventAcked, Count: 1, Took: w.Mq.Cfg.Now().Sub(began)}, n == 1, err)
}
