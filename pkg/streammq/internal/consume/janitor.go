package consume

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const maxZombiePending = 1000 // they are moved inside one script

// JanitorConfig says which consumers' names are removed from their group: those without a heartbeat that have been idle
// for long and hold little. Each start of a member has a name of its own, so that names of the dead gather.
type JanitorConfig struct {
	// Interval between two looks, the first at start; 0: none.
	Interval time.Duration
	// MinIdle is how long the consumer must have been idle.
	MinIdle time.Duration
	// MaxPending is the most pending entries that it may have; they are moved to the member that removes it.
	MaxPending int
	// DryRun only logs and counts.
	DryRun bool
}

// Defaults of ZOMBIE_* in contract §7.
const (
	DefaultZombieInterval = 10 * time.Minute
	DefaultZombieMinIdle  = 72 * time.Hour
)

func (c JanitorConfig) validate(p *model.Problems) {
	p.Refuse(c.Interval < 0 || c.MinIdle < 0, "Janitor.Interval %s, MinIdle %s: must not be negative", c.Interval, c.MinIdle)
	p.Refuse(c.MaxPending < 0 || c.MaxPending > maxZombiePending, "Janitor.MaxPending %d: 0 to %d", c.MaxPending, maxZombiePending)
}

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

// RemoveConsumer checks and removes in one step; it also returns how many entries are the heir's now.
func RemoveConsumer(q *core.Core, ctx context.Context, src core.Source, group, name, heir string, c JanitorConfig) (removed bool, moved int, err error) {
	removed, moved, err = q.RemoveConsumer(ctx, q.Scripts.ConsumerRemove, stream.Removal{
		Key: src.Stream(), Group: group, Name: name, Heir: heir, MinIdle: c.MinIdle, MaxPending: c.MaxPending,
	})
	return removed, moved, model.Failure(ctx, fmt.Sprintf("remove consumer %s of %s", name, src.Stream()), err)
}
