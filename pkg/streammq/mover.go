package streammq

import (
	"context"
	"time"
)

// wakeMover tells the mover of this process that something is due after a delay; it wakes for the earliest.
func (s *Subscriber) wakeMover(delay time.Duration) {
	for at := s.mq.cfg.Now().Add(delay); ; {
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
	if err := s.mq.adopt(ctx, s.here()); err != nil && ctx.Err() == nil {
		s.warn(ctx, "streammq: renaming retries of an earlier version failed", err)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := s.mq.cfg.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-s.mover:
			if at.Before(next) {
				next = at
			}
		case <-timer.C:
			next = s.mq.cfg.Now().Add(s.moveRound(ctx))
		}
		// MoverEvery is a bound also for a clock that was set back.
		timer.Reset(min(s.cfg.MoverEvery, max(time.Millisecond, next.Sub(s.mq.cfg.Now()))))
	}
}

// moveRound moves what is due and returns the time until it should be called again.
func (s *Subscriber) moveRound(ctx context.Context) time.Duration {
	pause := s.cfg.MoverEvery
	// A batch of each in turn: a partition with many must not make the others late.
	for sources := s.retrySources(); len(sources) > 0 && ctx.Err() == nil; {
		var full []source
		for _, src := range sources {
			n, next, err := s.mq.moveDue(ctx, src, s.cfg.MoverBatch)
			if err != nil && ctx.Err() == nil {
				s.warn(ctx, "streammq: moving retries failed", err)
			}
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
func (s *Subscriber) retrySources() []source {
	if s.cfg.StreamKey != "" || s.mq.cfg.Layout == LayoutSingle {
		return []source{s.here()}
	}
	var sources []source
	for _, w := range s.owned() {
		sources = append(sources, w.src)
	}
	return sources
}

// wakes is where the mover of a subscriber is told when something is due.
func wakes(s *Subscriber) <-chan time.Time { return s.mover }
