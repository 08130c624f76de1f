package outbox

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
)

const (
	// minPause is the first pause of a sender that found nothing; it doubles up to Config.Interval.
	minPause = 5 * time.Millisecond
	// wholeTurn is how many events a turn leases at most, unless a batch is larger: small batches share their transaction.
	wholeTurn = 100
	// firstRest and lastRest are the pauses of a sender whose events all fail for want of a broker; they double.
	firstRest, lastRest = 20 * time.Millisecond, 500 * time.Millisecond
	// firstStoreRest and lastStoreRest are the pauses while the database does not answer; they double.
	firstStoreRest, lastStoreRest = 50 * time.Millisecond, 2 * time.Second
	// markTime bounds the marks of a stop, unless Config says otherwise.
	markTime = 5 * time.Second
)

// sender is one loop of turns over one status: while events are sent the next are leased, and the marks of those ride in the
// same transaction. Only its own goroutine touches it.
type sender struct {
	relay      *Relay
	status     Status
	helper     bool // takes turns only when another sender asks for help, and looks for nothing by itself
	firstPause time.Duration
	wake, also <-chan struct{}
	done       chan inFlightBatch

	inFlight int      // events that the sender has
	marks    []Mark   // answered and not written down
	answers  []answer // of each mark
	pause    time.Duration
	peek     bool // nothing was there a moment ago: look without a lock first
	rest     pause.Backoff
	resting  time.Time     // nothing is leased before
	mending  pause.Backoff // after turns that failed
}

// answer is how long an event had waited when it was leased, when that was, how long the sender took, and where it went.
type answer struct {
	age   time.Duration
	since time.Time
	took  time.Duration
	topic string
}

// turnSize is how many events one turn leases at most: whole batches.
func (c Config) turnSize() int {
	return (max(wholeTurn, c.BatchSize) + c.BatchSize - 1) / c.BatchSize * c.BatchSize
}

// capacity is how many events of a sender may be under way.
func (c Config) capacity() int { return 2 * c.turnSize() }

// newSender makes a sender that is woken by either signal; also may be nil.
func newSender(r *Relay, status Status, firstPause time.Duration, wake, also *Signal) *sender {
	l := &sender{
		relay: r, status: status, firstPause: firstPause, pause: firstPause, wake: wake.C(),
		done: make(chan inFlightBatch, r.cfg.capacity()), // a flight holds at least one event: nobody waits to land
		rest: pause.Backoff{First: firstRest, Most: lastRest}, mending: pause.Backoff{First: firstStoreRest, Most: lastStoreRest},
	}
	if also != nil {
		l.also = also.C()
	}
	return l
}

// run takes turns until ctx ends; then it waits for what is under way and writes it down.
func (l *sender) run(ctx context.Context) {
	sends, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if l.helper {
		l.waitFor(ctx, 0)
	}
	for ctx.Err() == nil {
		l.gather(ctx)
		l.waitFor(ctx, l.step(ctx, sends))
	}
	grace := time.AfterFunc(l.relay.cfg.StopGrace, stop)
	defer grace.Stop()
	for l.inFlight > 0 {
		l.complete(ctx, <-l.done)
	}
	l.finish(ctx)
}

// finish writes down what came since the last turn.
func (l *sender) finish(ctx context.Context) {
	if len(l.marks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(l.relay.cfg.MarkTime, markTime))
	defer cancel()
	if _, err := l.relay.d.Store.Turn(ctx, Turn{Marks: l.marks, Status: l.status}); err != nil {
		l.relay.trouble(ctx, "stop", "outbox: events were not marked at the stop and will be sent again", err)
		return
	}
	l.written()
}

// now is a pause that does not wait at all; a pause of 0 waits for a signal alone.
const now time.Duration = -1

// step takes a turn, if there is something to do, and returns how long to wait for a signal before the next.
func (l *sender) step(ctx, sends context.Context) time.Duration {
	cfg := l.relay.cfg
	limit := min(cfg.capacity()-l.inFlight, cfg.turnSize())
	rest := l.resting.Sub(l.relay.d.Clock())
	if rest > 0 {
		limit = 0
	}
	found, err := l.turn(ctx, sends, limit)
	switch {
	case err != nil:
		return l.mend(ctx, err)
	case rest > 0:
		return rest
	case limit == 0: // the sender has all that it may have
		return 0
	case found == limit:
		l.pause, l.peek = l.firstPause, false
		if l.status == StatusNew {
			l.relay.help.Ring()
		}
		return now
	case found > 0:
		l.pause, l.peek = l.firstPause, l.status == StatusRetrying
		return l.pause
	case l.helper:
		return 0
	}
	l.peek = true
	wait := l.pause
	l.pause = min(max(2*l.pause, minPause), cfg.Interval)
	return wait
}

// turn writes down what is answered, leases up to limit events and sends them. It returns how many.
func (l *sender) turn(ctx, sends context.Context, limit int) (int, error) {
	store := l.relay.d.Store
	if len(l.marks) == 0 && limit == 0 {
		return 0, nil
	}
	if len(l.marks) == 0 && l.peek && !l.helper {
		wait, err := store.NextWake(ctx, l.status, l.relay.cfg.Interval)
		if err != nil {
			return 0, err
		}
		if wait > 0 {
			l.pause = min(l.pause, max(wait, time.Millisecond))
			return 0, nil
		}
	}
	crash.Point("relay.before_mark")
	t := Turn{Marks: l.marks, Status: l.status, Limit: limit, Token: newToken(), Lease: l.relay.cfg.Lease}
	leased, err := store.Turn(ctx, t)
	if err != nil {
		return 0, err
	}
	crash.Point("relay.after_mark")
	l.mending.Reset()
	l.written()
	if len(leased) > 0 {
		l.inFlight += len(leased)
		go l.send(sends, inFlightBatch{token: t.Token, events: leased, began: l.relay.d.Clock()})
	}
	return len(leased), nil
}

// mend returns the pause after a turn that failed; the marks are kept.
func (l *sender) mend(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return now
	}
	l.relay.trouble(ctx, "turn", "outbox: the database does not take a turn", err)
	return l.mending.Next()
}

// waitFor waits for an answer, a signal or the pause.
func (l *sender) waitFor(ctx context.Context, pause time.Duration) {
	if pause == now {
		return
	}
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
	case <-over:
	case f := <-l.done:
		l.complete(ctx, f)
	case <-l.wake:
		l.peek = l.status == StatusRetrying
	case <-l.also:
		l.peek = false
	}
}

// gather takes what has been answered without waiting.
func (l *sender) gather(ctx context.Context) {
	for {
		select {
		case f := <-l.done:
			l.complete(ctx, f)
		default:
			return
		}
	}
}

// complete decides what the answers of a flight make of its events.
func (l *sender) complete(ctx context.Context, f inFlightBatch) {
	r := l.relay
	l.inFlight -= len(f.events)
	absent := 0
	texts := map[string]string{} // in an outage they are alike
	for i, e := range f.events {
		m := r.cfg.judge(e, f.token, f.errs[i])
		if err := f.errs[i]; err != nil {
			if _, known := texts[err.Error()]; !known {
				texts[err.Error()] = r.trouble(ctx, "send "+string(m.Cause), "outbox: events are not taken", err)
			}
			m.Error = texts[err.Error()]
		}
		l.marks, l.answers = append(l.marks, m), append(l.answers, answer{age: e.Age, since: f.began, took: f.took, topic: e.Topic})
		if m.To != StatusSent && !errors.Is(f.errs[i], ErrRefused) {
			absent++
		}
	}
	if absent < len(f.events) {
		l.rest.Reset()
		l.resting = time.Time{}
		return
	}
	l.resting = r.d.Clock().Add(l.rest.Next())
}

// written counts and forgets the marks that are committed, and tells of those that failed.
func (l *sender) written() {
	at := l.relay.d.Clock()
	failed := false
	for i, m := range l.marks {
		a := l.answers[i]
		l.relay.metrics.attempt(resultOf(m), a.took)
		switch m.To {
		case StatusSent:
			l.relay.metrics.delay.Observe((a.age + at.Sub(a.since)).Seconds())
			if l.relay.d.DeadLetters != "" && a.topic == l.relay.d.DeadLetters {
				l.relay.metrics.deadLetters.Inc()
			}
		case StatusRetrying:
			failed = true
		case StatusNew, StatusDead:
		}
	}
	if failed {
		l.relay.retries.Ring() // it may be due before that sender would look
	}
	l.marks, l.answers = l.marks[:0], l.answers[:0]
}

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
