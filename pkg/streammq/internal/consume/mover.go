package consume

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/retry"
)

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

// wake is WakeMover.
func (s *Subscriber) wake(delay time.Duration) { WakeMover(s, delay) }
