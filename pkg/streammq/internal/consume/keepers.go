package consume

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/dlq"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/retry"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// keeper tidies up beside the workers of a member.
type keeper struct{ *Subscriber }

// clean looks once at the sources that this member works on: on a topic it owns them, so that no two members remove
// names of one stream, and nobody but it has pending entries there.
func (k keeper) clean(ctx context.Context) {
	live, _, err := k.beat(ctx, k.cfg.Lease)
	if err != nil {
		k.failed(ctx, "streammq: looking for dead consumers failed", err)
		return
	}
	alive := map[string]bool{k.name: true}
	for _, m := range live {
		alive[m.Name] = true
	}
	seen := map[string]bool{}
	for _, w := range Owned(k.Subscriber) {
		if seen[w.Src.Stream()] {
			continue // a reader and a claimer share their stream
		}
		seen[w.Src.Stream()] = true
		k.failed(ctx, "streammq: removing dead consumers failed", k.cleanSource(ctx, w, alive))
	}
}

func (k keeper) cleanSource(ctx context.Context, w *Worker, alive map[string]bool) error {
	consumers, err := stream.Consumers(ctx, k.mq.Client, w.Src.Stream(), k.cfg.Group)
	if stream.IsMissing(err) {
		return nil
	}
	if err != nil {
		return model.Failure(ctx, "list consumers of "+w.Src.Stream(), err)
	}
	for _, c := range consumers {
		if err := k.cleanOne(ctx, w, c, alive); err != nil {
			return err
		}
	}
	return nil
}

// cleanOne removes one name. What it holds is w's then, which takes it up at once.
func (k keeper) cleanOne(ctx context.Context, w *Worker, c stream.Consumer, alive map[string]bool) error {
	src := w.Src
	if alive[c.Name] || src.Single && alive[strings.TrimSuffix(c.Name, core.ClaimSuffix)] ||
		c.Idle < k.cfg.Janitor.MinIdle || c.Pending > int64(k.cfg.Janitor.MaxPending) {
		return nil
	}
	if !k.cfg.Janitor.DryRun {
		removed, moved, err := RemoveConsumer(k.mq, ctx, src, k.cfg.Group, c.Name, w.Consumer, k.cfg.Janitor)
		if moved > 0 {
			w.heir.Store(true)
		}
		if err != nil || !removed {
			return err
		}
	}
	k.mq.Observe(model.Event{Kind: model.EventZombie, Topic: src.Topic, Partition: src.Part, Group: k.cfg.Group, Member: k.cfg.Member, Count: 1})
	k.mq.Cfg.Log.InfoContext(ctx, "streammq: dead consumer removed", slog.String("stream", src.Stream()), slog.String("group", k.cfg.Group),
		slog.String("consumer", c.Name), slog.Duration("idle", c.Idle), slog.Bool("dry_run", k.cfg.Janitor.DryRun))
	return nil
}

func (k keeper) trimOwned(ctx context.Context) {
	for _, w := range Owned(k.Subscriber) {
		_, err := k.mq.TrimSource(ctx, w.Src, k.cfg.Retention)
		k.failed(ctx, "streammq: trim failed", err)
		// Of a stream of dead letters that partitions share, the first one's owner takes care.
		if k.cfg.DeadLetterRetention == (model.Retention{}) || w.Src.Part > 0 && (!w.Src.Apart() || k.cfg.DeadLetterStream != "") {
			continue
		}
		l := dlq.LetterPlace{Mq: k.mq, Topic: w.Src.Topic, Single: w.Src.Single, Named: k.cfg.DeadLetterStream}
		_, err = l.Trim(ctx, w.Src, k.cfg.DeadLetterRetention)
		k.failed(ctx, "streammq: trim of dead letters failed", err)
	}
}

// keepApart moves letters that an earlier version of this queue, or somebody before Java came, has left where it reads.
func (k keeper) keepApart(ctx context.Context) {
	src := k.here()
	own, err := dlq.LettersApart(k.mq, ctx, src)
	if err == nil && own {
		err = dlq.PartDeadLetters(k.mq, ctx, src)
	}
	k.failed(ctx, "streammq: looking for dead letters among those of Java failed", err)
}

// startKeepers starts what tidies up: the mover of retries and the retention.
func (k keeper) startKeepers(ctx context.Context, taking *sync.WaitGroup) {
	if k.cfg.RetryMode == model.RetryRepublish {
		taking.Go(func() { mover(k).moveAll(ctx) })
	}
	if k.cfg.Retention != (model.Retention{}) || k.cfg.Delete != model.DeleteNever || k.cfg.DeadLetterRetention != (model.Retention{}) {
		core.Every(ctx, taking, k.cfg.TrimEvery, k.trimOwned)
	}
	if k.cfg.StreamKey == "" && k.cfg.DeadLetterStream == "" && k.mq.Cfg.Layout == model.LayoutSingle {
		core.Every(ctx, taking, k.cfg.TrimEvery, k.keepApart)
	}
	if k.cfg.Janitor.Interval > 0 {
		core.Every(ctx, taking, k.cfg.Janitor.Interval, k.clean)
	}
}

// mover adds republished messages to their streams when they are due.
type mover struct{ *Subscriber }

// WakeMover tells the mover of this process that something is due after a delay; it wakes for the earliest.
func WakeMover(s *Subscriber, delay time.Duration) {
	for at := s.mq.Cfg.Now().Add(delay); ; {
		select {
		case s.mover <- at:
			return
		case other := <-s.mover: // the mover is busy, and has not yet seen this one
			if other.Before(at) {
				at = other
			}
		}
	}
}

// moveAll adds republished messages to their streams when they are due, until ctx ends. All members do it; a script
// sees to it that each item is moved once.
func (m mover) moveAll(ctx context.Context) {
	m.failed(ctx, "streammq: renaming retries of an earlier version failed", retry.Adopt(m.mq, ctx, m.here()))
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := m.mq.Cfg.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-m.mover:
			if at.Before(next) {
				next = at
			}
		case <-timer.C:
			next = m.mq.Cfg.Now().Add(m.moveRound(ctx))
		}
		// MoverEvery is a bound also for a clock that was set back.
		timer.Reset(min(m.cfg.MoverEvery, max(time.Millisecond, next.Sub(m.mq.Cfg.Now()))))
	}
}

// moveRound moves what is due and returns the time until it should be called again.
func (m mover) moveRound(ctx context.Context) time.Duration {
	pause := m.cfg.MoverEvery
	// A batch of each in turn: a partition with many must not make the others late.
	for sources := m.retrySources(); len(sources) > 0 && ctx.Err() == nil; {
		var full []core.Source
		for _, src := range sources {
			n, next, err := retry.MoveDue(m.mq, ctx, src, m.cfg.MoverBatch)
			m.failed(ctx, "streammq: moving retries failed", err)
			if err == nil && next >= 0 {
				pause = min(pause, next)
			}
			if err == nil && n == m.cfg.MoverBatch {
				full = append(full, src)
			}
		}
		sources = full
	}
	return pause
}

// retrySources have the retry sets that this member looks at: the topic's, or on a cluster those of its partitions.
func (m mover) retrySources() []core.Source {
	if m.cfg.StreamKey != "" || m.mq.Cfg.Layout == model.LayoutSingle {
		return []core.Source{m.here()}
	}
	var sources []core.Source
	for _, w := range Owned(m.Subscriber) {
		sources = append(sources, w.Src)
	}
	return sources
}

// Wakes is where the mover of a subscriber is told when something is due.
func Wakes(s *Subscriber) <-chan time.Time { return s.mover }
