package streammq

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

var (
	errRefused = errors.New("write refused")
	errHeir    = errors.New("entries of another consumer are this one's now")

	errUnanswered = errors.New("delivered without an answer: its members died, hung or lost their lease")
)

const (
	nudgeAfter = 2 * time.Millisecond // the end of a block, which is rounded to ms
)

// worker runs the messages of one source, in the order of the stream or that of their keys, as long as it owns it.
type worker struct {
	reader
	sub  *Subscriber
	acks *acks

	stopping context.Context    // a signal: end after the current message, the rest stays pending
	stop     context.CancelFunc // gives that signal
	cut      context.CancelFunc // ends the handlers' ctx: the source is lost, or longest wait is over
	done     chan struct{}
	ended    func(context.Context) // before done

	renewed time.Time      // last answer that the lease is ours; only the member's loop touches it
	lost    atomic.Bool    // lose was called
	resting atomic.Bool    // it waits for Resume
	heir    atomic.Bool    // entries of another consumer were moved to this one
	began   []atomic.Int64 // by lane: when the running handler began, by MQ.elapsed; 0: none runs

	mu       sync.Mutex
	open     []held               // read, and not yet handled
	promised map[*settlement]bool // handled, and to be settled by their handler
	freed    chan struct{}        // has room for one: a promise was kept
}

func (s *Subscriber) newWorker(src source, consumer, epoch string) *worker {
	w := &worker{
		reader: reader{
			mq: s.mq, src: src, group: s.cfg.Group, consumer: consumer, epoch: epoch, status: s.cfg.Status, letters: s.cfg.DeadLetterStream,
			format: s.cfg.Format, deletes: s.cfg.Delete,
		},
		sub: s, done: make(chan struct{}), renewed: s.mq.cfg.Now(),
		began:    make([]atomic.Int64, s.cfg.Concurrency),
		promised: map[*settlement]bool{}, freed: make(chan struct{}, 1),
	}
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.acks = &acks{reader: &w.reader, delay: defaultAckDelay, event: w.event}
	return w
}

// start runs the worker with its own loop; handlers get a ctx that outlives ctx until lose.
func (w *worker) start(ctx context.Context, loop func(context.Context) error) {
	ctx, w.cut = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(w.done)
		defer w.stop()
		defer w.cut()
		w.run(ctx, loop)
		w.ended(ctx)
	}()
}

// lose ends the current message too: its writes would be refused.
func (w *worker) lose() {
	w.lost.Store(true)
	w.stop()
	w.cut()
}

func (w *worker) stopped() bool { return w.stopping.Err() != nil }

// run repeats the loop after errors, with pauses; each time it begins with what is pending.
func (w *worker) run(ctx context.Context, loop func(context.Context) error) {
	defer w.acks.end(ctx)
	pause := defaultErrorBackoff
	for !w.stopped() {
		began := w.mq.cfg.Now()
		err := loop(ctx)
		w.handBack() // what is pending is delivered again, to the next owner or from the beginning
		switch {
		case w.stopped() || ctx.Err() != nil || errors.Is(err, errLost):
			return
		case errors.Is(err, errRefused), errors.Is(err, errHeir):
			continue
		case stream.IsMissing(err):
			w.sub.healGroup(ctx, w.src)
		}
		if w.mq.cfg.Now().Sub(began) > maxErrorBackoff {
			pause = defaultErrorBackoff
		}
		w.mq.cfg.Log.WarnContext(ctx, "streammq: consuming failed", slog.String("stream", w.src.stream()),
			slog.String("group", w.group), slog.Any("error", err), slog.Duration("pause", pause))
		w.wait(ctx, pause)
		pause = min(2*pause, maxErrorBackoff)
	}
}

// wait ends early when the worker is to stop.
func (w *worker) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.stopping.Done():
	case <-ctx.Done():
	}
}

// own is the loop of an owner: all that is pending, in order, whoever had it, then what is new.
func (w *worker) own(ctx context.Context) error {
	if err := w.takeUp(ctx, w.recover); err != nil {
		return err
	}
	return w.main(ctx)
}

// takeUp runs what a look finds pending, each entry once: what its handler promises to settle stays pending.
func (w *worker) takeUp(ctx context.Context, look func(ctx context.Context, most int, after string) (fetched, error)) error {
	for after := ""; ; {
		got, err := look(ctx, w.sub.cfg.ClaimBatch, after)
		if err != nil {
			return err
		}
		if err := w.handle(ctx, got, false); err != nil {
			return err
		}
		if after = got.last; after == "" {
			return nil
		}
	}
}

// main reads what is new, and retries in place that are due.
func (w *worker) main(ctx context.Context) error {
	var next ahead
	defer next.drop(ctx)
	for {
		if err := w.pausing(ctx); err != nil {
			return err
		}
		got, err := next.read(ctx, &w.reader, w.sub.cfg.Batch)
		if err != nil {
			return err
		}
		next.begin(ctx, &w.reader, w.sub.cfg.Batch, len(got.entries))
		if err := w.handle(ctx, got, next.begun()); err != nil {
			return err
		}
		if got.last != "" && len(got.entries) == 0 {
			next.drop(ctx)
			if err := w.await(ctx, got); err != nil {
				return err
			}
		}
	}
}

// pausing waits while the subscriber is paused. Errors: errStopped, or ctx's; errHeir when the janitor moved entries to this
// consumer: the loop begins again, with what is pending.
func (w *worker) pausing(ctx context.Context) error {
	w.resting.Store(true)
	defer w.resting.Store(false)
	if err := w.sub.paused(ctx, w.stopping); err != nil {
		return err
	}
	if w.heir.Swap(false) {
		return errHeir
	}
	return nil
}

// await blocks until the stream has an entry after its last one, a retry in place is due, or Poll has passed.
func (w *worker) await(ctx context.Context, got fetched) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.stopping, cancel)()
	timeout := w.sub.cfg.Poll
	if got.wait >= 0 {
		timeout = min(timeout, got.wait)
	}
	block := max(1, timeout.Milliseconds())
	if timeout == got.wait {
		defer w.nudge(ctx, time.Duration(block)*time.Millisecond+nudgeAfter).Stop()
	}
	err := w.mq.Client.Do(ctx, w.mq.Client.B().Xread().Count(1).Block(block).Streams().Key(w.src.stream()).Id(got.last).Build()).Error()
	if err == nil || rueidis.IsRedisNil(err) || ctx.Err() != nil {
		return nil
	}
	return err
}

// nudge sends a command to the stream's server after a delay: an idle server finds out that a block is over only ten times
// a second, one that gets a command at once, and a retry would be late by that.
func (w *worker) nudge(ctx context.Context, delay time.Duration) *time.Timer {
	return time.AfterFunc(delay, func() {
		w.mq.Client.Do(ctx, w.mq.Client.B().Xlen().Key(w.src.stream()).Build())
	})
}

func (w *worker) count(got fetched) {
	if n := len(got.entries); n > 0 {
		w.event(Event{Kind: EventConsumed, Count: n})
	}
	if got.lost > 0 {
		w.event(Event{Kind: EventLost, Count: got.lost})
		w.mq.cfg.Log.Warn("streammq: pending entries have no data any more", slog.String("stream", w.src.stream()), slog.Int("entries", got.lost))
	}
}

func (w *worker) event(e Event) {
	e.Topic, e.Partition, e.Group, e.Member = w.src.topic, w.src.part, w.group, w.sub.cfg.Member
	w.mq.observe(e)
}
