package consume

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/dlq"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// clean looks once at the sources that this member works on: on a topic it owns them, so that no two members remove
// names of one stream, and nobody but it has pending entries there.
func (s *Subscriber) clean(ctx context.Context) {
	live, _, err := s.beat(ctx, s.cfg.Lease)
	if err != nil {
		if ctx.Err() == nil {
			s.warn(ctx, "streammq: looking for dead consumers failed", err)
		}
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
		if err := s.cleanSource(ctx, w, alive); err != nil && ctx.Err() == nil {
			s.warn(ctx, "streammq: removing dead consumers failed", err)
		}
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
		if _, err := s.mq.TrimSource(ctx, w.Src, s.cfg.Retention); err != nil && ctx.Err() == nil {
			s.warn(ctx, "streammq: trim failed", err)
		}
		// Of a stream of dead letters that partitions share, the first one's owner takes care.
		if s.cfg.DeadLetterRetention == (model.Retention{}) || w.Src.Part > 0 && (!w.Src.Apart() || s.cfg.DeadLetterStream != "") {
			continue
		}
		l := dlq.LetterPlace{Mq: s.mq, Topic: w.Src.Topic, Single: w.Src.Single, Named: s.cfg.DeadLetterStream}
		if _, err := l.Trim(ctx, w.Src, s.cfg.DeadLetterRetention); err != nil && ctx.Err() == nil {
			s.warn(ctx, "streammq: trim of dead letters failed", err)
		}
	}
}

// keepApart moves letters that an earlier version of this queue, or somebody before Java came, has left where it reads.
func (s *Subscriber) keepApart(ctx context.Context) {
	src := s.here()
	own, err := dlq.LettersApart(s.mq, ctx, src)
	if err == nil && own {
		err = dlq.PartDeadLetters(s.mq, ctx, src)
	}
	if err != nil && ctx.Err() == nil {
		s.warn(ctx, "streammq: looking for dead letters among those of Java failed", err)
	}
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
