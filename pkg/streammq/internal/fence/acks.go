package fence

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Acks gathers what was handled, so that many entries share one script: at the end of a batch, or after a short delay
// should a handler run longer than that.
type Acks struct {
	Reader *Reader
	Delay  time.Duration
	Event  func(model.Event) // says who, of what and in which group

	sending sync.Mutex     // one script at a time; taken before mu
	running sync.WaitGroup // flushes that nobody waits for

	mu      sync.Mutex
	items   []Held
	since   time.Time
	timer   *time.Timer
	refused bool
	err     error
}

func (a *Acks) Add(ctx context.Context, h Held) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.items) == 0 {
		a.since = a.Reader.Mq.Cfg.Now()
		a.timer = time.AfterFunc(a.Delay, func() { a.Flush(ctx) })
	}
	a.items = append(a.items, h)
}

// Begin acknowledges what was gathered without waiting for it; what it finds is told by a later verdict.
func (a *Acks) Begin(ctx context.Context) { a.running.Go(func() { a.Flush(ctx) }) }

// End acknowledges what was gathered, and waits for all that was begun.
func (a *Acks) End(ctx context.Context) {
	a.Flush(ctx)
	a.running.Wait()
}

// Flush acknowledges what was gathered, after all that was being acknowledged. What it finds is told by verdict.
func (a *Acks) Flush(ctx context.Context) {
	a.sending.Lock()
	defer a.sending.Unlock()
	items, since := a.taken()
	if len(items) == 0 {
		return
	}
	slices.SortFunc(items, func(a, b Held) int { return stream.CompareIDs(a.Id, b.Id) }) // lanes end in any order
	ctx, cancel := core.Writing(ctx)
	defer cancel()
	n, err := a.Reader.Ack(ctx, items)
	if err != nil {
		a.note(false, err)
		a.Event(model.Event{Kind: model.EventFailed, Of: model.EventAcked, Count: len(items), Err: err})
		return
	}
	a.Event(model.Event{Kind: model.EventAcked, Count: max(0, n), Took: a.Reader.Mq.Cfg.Now().Sub(since)})
	if n < len(items) {
		a.note(true, nil)
		a.Event(model.Event{Kind: model.EventRefused, Of: model.EventAcked, Count: len(items) - max(0, n)})
	}
}

// taken are the items gathered so far, and since when.
func (a *Acks) taken() ([]Held, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := a.items
	if len(items) > 0 {
		a.timer.Stop()
		a.items = make([]Held, 0, len(items))
	}
	return items, a.since
}

func (a *Acks) note(refused bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = a.refused || refused
	if err != nil {
		a.err = err
	}
}

// Verdict tells, once, whether an acknowledgement was refused or failed since the last call.
func (a *Acks) Verdict() (refused bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused, err = a.refused, a.err
	a.refused, a.err = false, nil
	return refused, err
}
