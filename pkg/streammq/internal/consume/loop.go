package consume

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

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
			w.member.healGroup(ctx, w.Src)
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
		got, err := look(ctx, w.cfg.ClaimBatch, after)
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
		got, err := next.Read(ctx, &w.Reader, w.cfg.Batch)
		if err != nil {
			return err
		}
		next.Begin(ctx, &w.Reader, w.cfg.Batch, len(got.Entries))
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
	if err := w.member.paused(ctx, w.stopping); err != nil {
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
	timeout := w.cfg.Poll
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

// A single stream has no leases: each of its consumers reads what is new, and what fences an entry is the consumer and
// the delivery count that Redis names for it. Worker 0 reads, worker 1 claims, under a name of its own: the two run
// beside each other, and one must not take the other's entry for its own.
const (
	readNumber  = 0
	claimNumber = 1
)

func (s *Subscriber) startStream(ctx, loops context.Context, taking, running *sync.WaitGroup) error {
	src := s.here()
	err := s.mq.Client.Do(ctx, s.createGroup(src, s.cfg.Start)).Error()
	if err != nil && !stream.IsError(err, "BUSYGROUP") {
		s.warn(ctx, "streammq: group cannot be made yet", err)
	}
	s.beatOnStream(ctx) // before the first read: what a member without a heartbeat holds is anybody's
	core.Every(loops, running, s.cfg.Renew, s.beatOnStream)
	core.Every(loops, running, s.cfg.ClaimIdle/3, s.touchAll)
	if s.cfg.Role != RoleClaim {
		w := NewWorker(s, src, s.name, "")
		s.launch(ctx, readNumber, w, w.readStream)
	}
	if s.cfg.Role != RoleMain {
		w := NewWorker(s, src, s.name+core.ClaimSuffix, "")
		s.launch(ctx, claimNumber, w, func(ctx context.Context) error { return s.claimStream(ctx, w) })
	}
	s.startKeepers(ctx, taking)
	return nil
}

// beatOnStream notes that the member lives, while the stream is there. As in renew, it is not abandoned at a stop.
func (s *Subscriber) beatOnStream(ctx context.Context) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease/2)
	defer cancel()
	if !s.there(call) {
		return
	}
	_, _, err := s.beatAs(call, s.cfg.Lease, true)
	s.failed(ctx, "streammq: heartbeat failed", err)
}

// touchAll tells Redis that the entries of running batches are not forgotten.
func (s *Subscriber) touchAll(ctx context.Context) {
	for _, w := range Owned(s) {
		if open := w.stillOpen(); len(open) > 0 {
			s.failed(ctx, "streammq: idle reset failed", w.Touch(ctx, open))
		}
	}
}

// readStream begins with what this consumer's name has pending from before: no other process has that name.
// A subscriber that claims too does so with each of its reads where the server can: it need not wait for the claimer's turn.
func (w *Worker) readStream(ctx context.Context) error {
	w.Claims = ""
	if w.cfg.Role == RoleBoth {
		able, err := w.CanClaim(ctx)
		if err != nil {
			return err
		}
		if able {
			w.Claims = stream.Millis(w.cfg.ClaimIdle)
		}
	}
	if err := w.takeUp(ctx, w.ClaimOwn); err != nil {
		return err
	}
	if _, err := w.claimAll(ctx, nil); err != nil {
		return err
	}
	return w.main(ctx)
}

// claimAll goes on while there is something to claim, and returns the time until it should be called again.
func (w *Worker) claimAll(ctx context.Context, dead []string) (time.Duration, error) {
	idle, wait := w.cfg.ClaimIdle, w.cfg.PendingScan
	if w.cfg.Role == RoleMain {
		idle = fence.Never // its own only
	}
	for {
		got, err := w.Claim(ctx, w.cfg.ClaimBatch, idle, dead)
		if err != nil {
			return 0, err
		}
		if err := w.Handle(ctx, got, false); err != nil {
			return 0, err
		}
		if len(got.Entries) == 0 {
			if got.Wait >= 0 {
				wait = min(wait, max(got.Wait, time.Millisecond))
			}
			return wait, nil
		}
	}
}

// claimStream looks for entries of dead and silent consumers, every PendingScan.
func (s *Subscriber) claimStream(ctx context.Context, w *Worker) error {
	if err := w.pausing(ctx); err != nil {
		return err
	}
	if err := w.takeUp(ctx, w.ClaimOwn); err != nil {
		return err
	}
	for {
		if err := w.pausing(ctx); err != nil {
			return err
		}
		var dead []string
		_, gone, err := s.beat(ctx, s.cfg.Lease)
		if err != nil {
			return err
		}
		for _, name := range gone {
			dead = append(dead, name, name+core.ClaimSuffix)
		}
		wait, err := w.claimAll(ctx, dead)
		if err != nil {
			return err
		}
		w.wait(ctx, wait)
	}
}
