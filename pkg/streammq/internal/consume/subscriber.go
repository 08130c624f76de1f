// Package consume is a member of a group: its leases and heartbeat, the workers of its partitions, and what their handlers, or who
// polls, make of the messages.
package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/desk"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// ErrStuck is wrapped by Run's error when a handler did not return in twice the StopTimeout; its goroutine lives on.
var ErrStuck = errors.New("handler does not return")

// Subscriber consumes one topic, or one single stream, for one group.
type Subscriber struct {
	mq   *core.Core
	cfg  SubscriberConfig
	name string // of this start

	ran   atomic.Bool
	gone  atomic.Bool    // the topic was deleted
	slots chan struct{}  // MaxInFlight; nil: no bound
	mover chan time.Time // when something is due
	// looker wakes the look at how the partitions are shared.
	looker chan struct{}

	mu      sync.Mutex
	workers map[int]*Worker  // by partition; on a single stream 0 reads and 1 claims
	alive   map[*Worker]bool // these, and those that lost their source to another while their handler still runs
	resume  chan struct{}    // not nil: paused; closed by Resume
	grouped int              // partitions whose group was made
	looked  []string         // members that were alive at the last look, sorted
	end     func(error)      // ends Run; nil before it

	// Subscribers of dead letters set these two; otherwise they are false and "".
	opaque  bool   // entries are not looked into: a handler gets their fields
	ofTopic string // a topic without which the stream must not be

	// A Consumer sets these two; otherwise they are nil.
	pull func(*Worker) func(context.Context) error // the loop of an owner
	away func() bool                               // the member leaves its partitions to others
}

// NewSubscriber makes a subscriber; Run makes it work. Errors: those of SubscriberConfig.Validate.
func NewSubscriber(q *core.Core, cfg SubscriberConfig) (*Subscriber, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return newSubscriber(q, cfg), nil
}

func newSubscriber(q *core.Core, cfg SubscriberConfig) *Subscriber {
	s := &Subscriber{
		mq: q, cfg: cfg, name: cfg.Member, workers: map[int]*Worker{}, alive: map[*Worker]bool{}, mover: make(chan time.Time, 1),
		looker: make(chan struct{}, 1),
	}
	if cfg.StreamKey == "" {
		s.name += "-" + model.NewUUID(q.Cfg.Now())
	}
	if cfg.MaxInFlight > 0 {
		s.slots = make(chan struct{}, cfg.MaxInFlight)
	}
	return s
}

// NewOpaque makes a subscriber of a stream of dead letters; a valid configuration is the caller's business.
func NewOpaque(q *core.Core, cfg SubscriberConfig, ofTopic string) *Subscriber {
	s := newSubscriber(q, cfg)
	s.opaque, s.ofTopic = true, ofTopic
	return s
}

// Name is the member's name of this start: the consumer that Redis names.
func (s *Subscriber) Name() string { return s.name }

// Owned are the workers of now.
func Owned(s *Subscriber) map[int]*Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.workers)
}

func Living(s *Subscriber) []*Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.alive))
}

// Partitions are the numbers of the partitions that this member works on now, in no order.
func (s *Subscriber) Partitions() []int {
	return slices.Collect(maps.Keys(Owned(s)))
}

// Pause stops reading after the current messages; leases are kept, and what is due waits.
func (s *Subscriber) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resume == nil {
		s.resume = make(chan struct{})
	}
}

// Resume goes on after Pause.
func (s *Subscriber) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resume != nil {
		close(s.resume)
		s.resume = nil
	}
}

// paused waits while the subscriber is paused. Error: errStopped.
func (s *Subscriber) paused(ctx context.Context, stopping context.Context) error {
	for {
		s.mu.Lock()
		resume := s.resume
		s.mu.Unlock()
		select {
		case <-stopping.Done():
			return desk.ErrStopped
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if resume == nil {
			return nil
		}
		select {
		case <-resume:
		case <-stopping.Done():
		case <-ctx.Done():
		}
	}
}

// admit waits for a place among the running handlers; the caller gives it back. Error: errStopped.
func (s *Subscriber) admit(ctx context.Context, stopping context.Context) (func(), error) {
	if s.slots == nil {
		return func() {}, nil
	}
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-stopping.Done():
		return nil, desk.ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Subscriber) warn(ctx context.Context, text string, err error) {
	s.mq.Cfg.Log.WarnContext(ctx, text, slog.String("topic", s.cfg.Topic+s.cfg.StreamKey), slog.String("group", s.cfg.Group),
		slog.String("member", s.name), slog.Any("error", err))
}

// failed warns of an error, unless it is none or ctx has ended.
func (s *Subscriber) failed(ctx context.Context, text string, err error) {
	if err != nil && ctx.Err() == nil {
		s.warn(ctx, text, err)
	}
}

// here is the source that keys of the whole topic are named after.
func (s *Subscriber) here() core.Source {
	if s.cfg.StreamKey != "" {
		return core.Source{Layout: s.mq.Cfg.Layout, Topic: s.cfg.StreamKey, Single: true}
	}
	return s.mq.Source(s.cfg.Topic, 0)
}

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
		err = s.startStream(ctx, loops, &taking, &running)
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
	core.Every(loops, running, s.cfg.Renew, s.renew)
	taking.Go(func() { s.rebalanceAll(ctx) })
	s.startKeepers(ctx, taking)
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
