package outbox

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/crash"
)

// errNoAnswer stands for a result that the sender did not give.
var errNoAnswer = errors.New("the broker's client gave no answer")

// inFlightBatch is what one turn leased: it is sent at once, in batches side by side, and lands with an answer for each event.
type inFlightBatch struct {
	token  string
	events []Leased
	errs   []error // of each event
	began  time.Time
	took   time.Duration
}

// send sends f and lands it. No lock is held and no transaction is open meanwhile.
func (l *sender) send(ctx context.Context, f inFlightBatch) {
	crash.Point("relay.after_lease")
	ctx, cancel := context.WithTimeout(ctx, l.relay.sendTime())
	defer cancel()
	f.errs = make([]error, len(f.events))
	batch := l.relay.cfg.BatchSize
	var wg sync.WaitGroup
	for from := batch; from < len(f.events); from += batch {
		to := min(from+batch, len(f.events))
		wg.Go(func() { l.relay.sendBatch(ctx, f.events[from:to], f.errs[from:to]) })
	}
	first := min(batch, len(f.events))
	l.relay.sendBatch(ctx, f.events[:first], f.errs[:first])
	wg.Wait()
	crash.Point("relay.after_send")
	f.took = l.relay.d.Clock().Sub(f.began)
	l.done <- f
}

// sendBatch hands one batch to the sender and files the answers.
func (r *Relay) sendBatch(ctx context.Context, leased []Leased, errs []error) {
	events := make([]Event, len(leased))
	for i, l := range leased {
		events[i], errs[i] = l.Event, errNoAnswer
	}
	ctx, end := sent(ctx, events)
	results := r.d.Sender.Send(ctx, events)
	for i := range min(len(results), len(events)) {
		if results[i].Seq == events[i].Seq {
			errs[i] = results[i].Err
		}
	}
	end(cmp.Or(errs...))
}
