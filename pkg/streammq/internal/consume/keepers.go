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

// clean looks once at the sources that this member works on: on a topic it owns them, so that no two members remove
// names of one stream, and nobody but it has pending entries there.
func (s *Subscriber) clean(ctx context.Context) {
	live, _, err := s.beat(ctx, s.cfg.Lease)
	if err != nil {
		s.failed(ctx, "streammq: looking for dead consumers failed", err)
		return
	}
	alive := map[string]bool{s.name: true}
	for _, m := range live {
		alive[m.Name] = true
	}
	seen := map[string]bool{}
	for _, w := range Owned(s) {
		if seen[w.Src.Stream()] {
			continue // a reader and a claimer share their stream
		}
		seen[w.Src.Stream()] = true
		s.failed(ctx, "streammq: removing dead consumers failed", s.cleanSource(ctx, w, alive))
	}
}

func (s *Subscriber) cleanSource(ctx context.Context, w *Worker, alive map[string]bool) error {
	consumers, err := stream.Consumers(ctx, s.mq.Client, w.Src.Stream(), s.cfg.Group)
	if stream.IsMissing(err) {
		return nil
	}
	if err != nil {
		return model.Failure(ctx, "list consumers of "+w.Src.Stream(), err)
	}
	for _, c := range consumers {
		if err := s.cleanOne(ctx, w, c, alive); err != nil {
			return err
		}
	}
	return nil
}

// cleanOne removes one name. What it holds is w's then, which takes it up at once.
func (s *Subscriber) cleanOne(ctx context.Context, w *Worker, c stream.Consumer, alive map[string]bool) error {
	src := w.Src
	if alive[c.Name] || src.Single && alive[strings.TrimSuffix(c.Name, core.ClaimSuffix)] ||
		c.Idle < s.cfg.Janitor.MinIdle || c.Pending > int64(s.cfg.Janitor.MaxPending) {
		return nil
	}
	if !s.cfg.Janitor.DryRun {
		removed, moved, err := RemoveConsumer(s.mq, ctx, src, s.cfg.Group, c.Name, w.Consumer, s.cfg.Janitor)
		if moved > 0 {
			w.heir.Store(true)
		}
		if err != nil || !removed {
			return err
		}
	}
	s.mq.Observe(model.Event{Kind: model.EventZombie, Topic: src.Topic, Partition: src.Part, Group: s.cfg.Group, Member: s.cfg.Member, Count: 1})
	s.mq.Cfg.Log.InfoContext(ctx, "streammq: dead consumer removed", slog.String("stream", src.Stream()), slog.String("group", s.cfg.Group),
		slog.String("consumer", c.Name), slog.Duration("idle", c.Idle), slog.Bool("dry_run", s.cfg.Janitor.DryRun))
	return nil
}

func (s *Subscriber) trimOwned(ctx context.Context) {
	for _, w := range Owned(s) {
		_, _, err := s.mq.TrimTo(ctx, w.Src, s.cfg.Retention, false)
		s.failed(ctx, "streammq: trim failed", err)
		// Of a stream of dead letters that partitions share, the first one's owner takes care.
		if s.cfg.DeadLetterRetention == (model.Retention{}) || w.Src.Part > 0 && (!w.Src.Apart() || s.cfg.DeadLetterStream != "") {
			continue
		}
		l := dlq.LetterPlace{Mq: s.mq, Topic: w.Src.Topic, Single: w.Src.Single, Named: s.cfg.DeadLetterStream}
		_, err = l.Trim(ctx, w.Src, s.cfg.DeadLetterRetention)
		s.failed(ctx, "streammq: trim of dead letters failed", err)
	}
}

// keepApart moves letters that an earlier version of this queue, or somebody before Java came, has left where it reads.
func (s *Subscriber) keepApart(ctx context.Context) {
	src := s.here()
	own, err := dlq.LettersApart(s.mq, ctx, src)
	if err == nil && own {
		err = dlq.PartDeadLetters(s.mq, ctx, src)
	}
	s.failed(ctx, "streammq: looking for dead letters among those of Java failed", err)
}

// startKeepers starts what tidies up: the mover of retries and the retention.
func (s *Subscriber) startKeepers(ctx context.Context, taking *sync.WaitGroup) {
	if s.cfg.RetryMode == model.RetryRepublish {
		taking.Go(func() { s.moveAll(ctx) })
	}
	if s.cfg.Retention != (model.Retention{}) || s.cfg.Delete != model.DeleteNever || s.cfg.DeadLetterRetention != (model.Retention{}) {
		core.Every(ctx, taking, s.cfg.TrimEvery, s.trimOwned)
	}
	if s.cfg.StreamKey == "" && s.cfg.DeadLetterStream == "" && s.mq.Cfg.Layout == model.LayoutSingle {
		core.Every(ctx, taking, s.cfg.TrimEvery, s.keepApart)
	}
	if s.cfg.Janitor.Interval > 0 {
		core.Every(ctx, taking, s.cfg.Janitor.Interval, s.clean)
	}
}

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
func (s *Subscriber) moveAll(ctx context.Context) {
	s.failed(ctx, "streammq: renaming retries of an earlier version failed", retry.Adopt(s.mq, ctx, s.here()))
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := s.mq.Cfg.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-s.mover:
			if at.Before(next) {
				next = at
			}
		case <-timer.C:
			next = s.mq.Cfg.Now().Add(s.moveRound(ctx))
		}
		// MoverEvery is a bound also for a clock that was set back.
		timer.Reset(min(s.cfg.MoverEvery, max(time.Millisecond, next.Sub(s.mq.Cfg.Now()))))
	}
}

// moveRound moves what is due and returns the time until it should be called again.
func (s *Subscriber) moveRound(ctx context.Context) time.Duration {
	pause := s.cfg.MoverEvery
	// A batch of each in turn: a partition with many must not make the others late.
	for sources := s.retrySources(); len(sources) > 0 && ctx.Err() == nil; {
		var full []core.Source
		for _, src := range sources {
			n, next, err := retry.MoveDue(s.mq, ctx, src, s.cfg.MoverBatch)
			s.failed(ctx, "streammq: moving retries failed", err)
			if err == nil && next >= 0 {
				pause = min(pause, next)
			}
			if err == nil && n == s.cfg.MoverBatch {
				full = append(full, src)
			}
		}
		sources = full
	}
	return pause
}

// retrySources have the retry sets that this member looks at: the topic's, or on a cluster those of its partitions.
func (s *Subscriber) retrySources() []core.Source {
	if s.cfg.StreamKey != "" || s.mq.Cfg.Layout == model.LayoutSingle {
		return []core.Source{s.here()}
	}
	var sources []core.Source
	for _, w := range Owned(s) {
		sources = append(sources, w.Src)
	}
	return sources
}

// Wakes is where the mover of a subscriber is told when something is due.
func Wakes(s *Subscriber) <-chan time.Time { return s.mover }
