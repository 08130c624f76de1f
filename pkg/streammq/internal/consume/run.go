package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Run consumes until ctx ends; then it lets running handlers finish, hands the rest back and returns nil.
// It goes on through every failure of the server.
// Errors: ErrRunning, ErrLayout and ErrForeignGroup at the start, ErrUnknownTopic when there is no such topic or it was deleted, ErrStuck.
func (s *Subscriber) Run(ctx context.Context) error {
	if !s.ran.CompareAndSwap(false, true) {
		return model.ErrRunning
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.mu.Lock()
	s.end = end
	s.mu.Unlock()
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var taking, running sync.WaitGroup // loops that end with ctx, and those that the last handler needs
	defer running.Wait()
	defer stopLoops()
	var err error
	if s.cfg.StreamKey != "" {
		err = single{s}.startStream(ctx, loops, &taking, &running)
	} else {
		err = StartTopic(s, ctx, loops, &taking, &running)
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // it was stopped before it began
		}
		return err
	}
	defer func() {
		src := s.here()
		s.mq.Observe(model.Event{Kind: model.EventLeft, Topic: src.Topic, Partition: -1, Group: s.cfg.Group, Member: s.cfg.Member, Count: 1})
	}()
	<-ctx.Done()
	s.stopWorkers()
	taking.Wait() // it may have started one more
	err = s.finish()
	stopLoops()
	running.Wait() // a heartbeat on its way would bring back the member that leaves
	if err == nil {
		s.leave(context.WithoutCancel(ctx))
	}
	if cause := context.Cause(ctx); errors.Is(cause, model.ErrUnknownTopic) {
		err = errors.Join(cause, err)
	}
	return err
}

// finish ends all workers, first gently; the leases are renewed until the last handler is done.
func (s *Subscriber) finish() error {
	s.stopWorkers()
	if !s.awaitWorkers() {
		for _, w := range Living(s) {
			w.Lose()
		}
		if !s.awaitWorkers() {
			return fmt.Errorf("%w: %d messages of %s are left to the next owner", ErrStuck, len(Living(s)), s.cfg.Topic+s.cfg.StreamKey)
		}
	}
	return nil
}

func (s *Subscriber) stopWorkers() {
	for _, w := range Living(s) {
		w.Stop()
	}
}

// awaitWorkers returns false when one still runs after StopTimeout.
func (s *Subscriber) awaitWorkers() bool {
	timeout := time.NewTimer(s.cfg.StopTimeout)
	defer timeout.Stop()
	for _, w := range Living(s) {
		select {
		case <-w.Done:
		case <-timeout.C:
			return false
		}
	}
	return true
}

// StartTopic makes the groups and starts the loops of a member.
func StartTopic(s *Subscriber, ctx, loops context.Context, taking, running *sync.WaitGroup) error {
	partitions, err := GrowGroups(s, ctx)
	if err == nil {
		err = s.refuseForeign(ctx, partitions)
	}
	if err != nil && !model.IsPassing(err) {
		return err
	}
	core.Every(loops, running, s.cfg.Renew, balancer{s}.renew)
	taking.Go(func() { balancer{s}.rebalanceAll(ctx) })
	keeper{s}.startKeepers(ctx, taking)
	return nil
}

// refuseForeign returns ErrForeignGroup when a partition is leased to a program that knows no epochs.
func (s *Subscriber) refuseForeign(ctx context.Context, partitions int) error {
	commands := make(rueidis.Commands, 0, 2*partitions)
	for i := range partitions {
		src := s.mq.Source(s.cfg.Topic, i)
		commands = append(commands, s.mq.Client.B().Get().Key(src.Lease(s.cfg.Group)).Build(),
			s.mq.Client.B().Exists().Key(src.Epoch(s.cfg.Group)).Build()) // after the lease: ours comes with its epoch, in one step
	}
	results := s.mq.Client.DoMulti(ctx, commands...)
	for i := range partitions {
		owner, err := results[2*i].ToString()
		if rueidis.IsRedisNil(err) {
			continue
		}
		epoch, err2 := results[2*i+1].AsBool()
		if err := errors.Join(err, err2); err != nil {
			return model.Failure(ctx, "look at the leases of group "+s.cfg.Group, err)
		}
		if !epoch {
			return fmt.Errorf("group %s of topic %s: %w: %q has partition %d: stop it, or take another group",
				s.cfg.Group, s.cfg.Topic, model.ErrForeignGroup, model.Clip(owner, 64), i)
		}
	}
	return nil
}

// leave takes this member out of its group.
func (s *Subscriber) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StopTimeout)
	defer cancel()
	if _, _, err := s.beat(ctx, 0); err != nil {
		s.warn(ctx, "streammq: leaving failed, the heartbeat expires", err)
	}
}
