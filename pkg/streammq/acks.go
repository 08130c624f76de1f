package streammq

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// acks gathers what was handled, so that many entries share one script: at the end of a batch, or after a short delay
// should a handler run longer than that.
type acks struct {
	reader *reader
	delay  time.Duration
	event  func(Event) // says who, of what and in which group

	sending sync.Mutex     // one script at a time; taken before mu
	running sync.WaitGroup // flushes that nobody waits for

	mu      sync.Mutex
	items   []held
	since   time.Time
	timer   *time.Timer
	refused bool
	err     error
}

func (a *acks) add(ctx context.Context, h held) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.items) == 0 {
		a.since = a.reader.mq.cfg.Now()
		a.timer = time.AfterFunc(a.delay, func() { a.flush(ctx) })
	}
	a.items = append(a.items, h)
}

// begin acknowledges what was gathered without waiting for it; what it finds is told by a later verdict.
func (a *acks) begin(ctx context.Context) { a.running.Go(func() { a.flush(ctx) }) }

// end acknowledges what was gathered, and waits for all that was begun.
func (a *acks) end(ctx context.Context) {
	a.flush(ctx)
	a.running.Wait()
}

// flush acknowledges what was gathered, after all that was being acknowledged. What it finds is told by verdict.
func (a *acks) flush(ctx context.Context) {
	a.sending.Lock()
	defer a.sending.Unlock()
	items, since := a.taken()
	if len(items) == 0 {
		return
	}
	slices.SortFunc(items, func(a, b held) int { return stream.CompareIDs(a.id, b.id) }) // lanes end in any order
	ctx, cancel := writing(ctx)
	defer cancel()
	n, err := a.reader.ack(ctx, items)
	if err != nil {
		a.note(false, err)
		a.event(Event{Kind: EventFailed, Of: EventAcked, Count: len(items), Err: err})
		return
	}
	a.event(Event{Kind: EventAcked, Count: max(0, n), Took: a.reader.mq.cfg.Now().Sub(since)})
	if n < len(items) {
		a.note(true, nil)
		a.event(Event{Kind: EventRefused, Of: EventAcked, Count: len(items) - max(0, n)})
	}
}

// taken are the items gathered so far, and since when.
func (a *acks) taken() ([]held, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := a.items
	if len(items) > 0 {
		a.timer.Stop()
		a.items = make([]held, 0, len(items))
	}
	return items, a.since
}

func (a *acks) note(refused bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = a.refused || refused
	if err != nil {
		a.err = err
	}
}

// verdict tells, once, whether an acknowledgement was refused or failed since the last call.
func (a *acks) verdict() (refused bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused, err = a.refused, a.err
	a.refused, a.err = false, nil
	return refused, err
}
