package consume

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

var (
	errRefused = errors.New("write refused")
	errHeir    = errors.New("entries of another consumer are this one's now")

	ErrUnanswered = errors.New("delivered without an answer: its members died, hung or lost their lease")
)

const (
	nudgeAfter = 2 * time.Millisecond // the end of a block, which is rounded to ms
)

// Worker runs the messages of one source, in the order of the stream or that of their keys, as long as it owns it.
type Worker struct {
	fence.Reader
	sub  *Subscriber
	acks *fence.Acks

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

	mu       sync.Mutex
	open     []fence.Held         // read, and not yet handled
	promised map[*settlement]bool // handled, and to be settled by their handler
	freed    chan struct{}        // has room for one: a promise was kept
}

func NewWorker(s *Subscriber, src core.Source, consumer, epoch string) *Worker {
	w := &Worker{
		Reader: fence.Reader{
			Mq: s.mq, Src: src, Group: s.cfg.Group, Consumer: consumer, Epoch: epoch, Status: s.cfg.Status, Letters: s.cfg.DeadLetterStream,
			Format: s.cfg.Format, Deletes: s.cfg.Delete,
		},
		sub: s, Done: make(chan struct{}), renewed: s.mq.Cfg.Now(),
		began:    make([]atomic.Int64, s.cfg.Concurrency),
		promised: map[*settlement]bool{}, freed: make(chan struct{}, 1),
	}
	w.stopping, w.Stop = context.WithCancel(context.Background())
	w.acks = &fence.Acks{Reader: &w.Reader, Delay: model.DefaultAckDelay, Event: w.event}
	return w
}

// start runs the worker with its own loop; handlers get a ctx that outlives ctx until lose.
func (w *Worker) start(ctx context.Context, loop func(context.Context) error) {
	ctx, w.cut = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(w.Done)
		defer w.Stop()
		defer w.cut()
		w.run(ctx, loop)
		w.Ended(ctx)
	}()
}

// Lose ends the current message too: its writes would be refused.
func (w *Worker) Lose() {
	w.lost.Store(true)
	w.Stop()
	w.cut()
}

func (w *Worker) Stopped() bool { return w.stopping.Err() != nil }

// run repeats the loop after errors, with pauses; each time it begins with what is pending.
func (w *Worker) run(ctx context.Context, loop func(context.Context) error) {
	defer w.acks.End(ctx)
	pause := model.DefaultErrorBackoff
	for !w.Stopped() {
		began := w.Mq.Cfg.Now()
		err := loop(ctx)
		w.handBack() // what is pending is delivered again, to the next owner or from the beginning
		switch {
		case w.Stopped() || ctx.Err() != nil || errors.Is(err, fence.ErrLost):
			return
		case errors.Is(err, errRefused), errors.Is(err, errHeir):
			continue
		case stream.IsMissing(err):
			w.sub.healGroup(ctx, w.Src)
		}
		if w.Mq.Cfg.Now().Sub(began) > model.MaxErrorBackoff {
			pause = model.DefaultErrorBackoff
		}
		w.Mq.Cfg.Log.WarnContext(ctx, "streammq: consuming failed", slog.String("stream", w.Src.Stream()),
			slog.String("group", w.Group), slog.Any("error", err), slog.Duration("pause", pause))
		w.wait(ctx, pause)
		pause = min(2*pause, model.MaxErrorBackoff)
	}
}

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

// own is the loop of an owner: all that is pending, in order, whoever had it, then what is new.
func (w *Worker) own(ctx context.Context) error {
	if err := w.takeUp(ctx, w.Recover); err != nil {
		return err
	}
	return w.main(ctx)
}

// takeUp runs what a look finds pending, each entry once: what its handler promises to settle stays pending.
func (w *Worker) takeUp(ctx context.Context, look func(ctx context.Context, most int, after string) (fence.Fetched, error)) error {
	for after := ""; ; {
		got, err := look(ctx, w.sub.cfg.ClaimBatch, after)
		if err != nil {
			return err
		}
		if err := w.Handle(ctx, got, false); err != nil {
			return err
		}
		if after = got.Last; after == "" {
			return nil
		}
	}
}

// main reads what is new, and retries in place that are due.
func (w *Worker) main(ctx context.Context) error {
	var next fence.Ahead
	defer next.Drop(ctx)
	for {
		if err := w.pausing(ctx); err != nil {
			return err
		}
		got, err := next.Read(ctx, &w.Reader, w.sub.cfg.Batch)
		if err != nil {
			return err
		}
		next.Begin(ctx, &w.Reader, w.sub.cfg.Batch, len(got.Entries))
		if err := w.Handle(ctx, got, next.Begun()); err != nil {
			return err
		}
		if got.Last != "" && len(got.Entries) == 0 {
			next.Drop(ctx)
			if err := w.await(ctx, got); err != nil {
				return err
			}
		}
	}
}

// pausing waits while the subscriber is paused. Errors: errStopped, or ctx's; errHeir when the janitor moved entries to this
// consumer: the loop begins again, with what is pending.
func (w *Worker) pausing(ctx context.Context) error {
	w.Resting.Store(true)
	defer w.Resting.Store(false)
	if err := w.sub.paused(ctx, w.stopping); err != nil {
		return err
	}
	if w.heir.Swap(false) {
		return errHeir
	}
	return nil
}

// await blocks until the stream has an entry after its last one, a retry in place is due, or Poll has passed.
func (w *Worker) await(ctx context.Context, got fence.Fetched) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.stopping, cancel)()
	timeout := w.sub.cfg.Poll
	if got.Wait >= 0 {
		timeout = min(timeout, got.Wait)
	}
	block := max(1, timeout.Milliseconds())
	if timeout == got.Wait {
		defer w.nudge(ctx, time.Duration(block)*time.Millisecond+nudgeAfter).Stop()
	}
	err := w.Mq.Client.Do(ctx, w.Mq.Client.B().Xread().Count(1).Block(block).Streams().Key(w.Src.Stream()).Id(got.Last).Build()).Error()
	if err == nil || rueidis.IsRedisNil(err) || ctx.Err() != nil {
		return nil
	}
	return err
}

// nudge sends a command to the stream's server after a delay: an idle server finds out that a block is over only ten times
// a second, one that gets a command at once, and a retry would be late by that.
func (w *Worker) nudge(ctx context.Context, delay time.Duration) *time.Timer {
	return time.AfterFunc(delay, func() {
		w.Mq.Client.Do(ctx, w.Mq.Client.B().Xlen().Key(w.Src.Stream()).Build())
	})
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

func (w *Worker) event(e model.Event) {
	e.Topic, e.Partition, e.Group, e.Member = w.Src.Topic, w.Src.Part, w.Group, w.sub.cfg.Member
	w.Mq.Observe(e)
}
