package consume

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/share"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const forgetDead = 24 * time.Hour // after it a dead member's name is no sign any more that its entries are free

// GrowGroups makes the group on all partitions that this member has not seen yet, and returns their number.
func GrowGroups(s *Subscriber, ctx context.Context) (int, error) {
	partitions, err := s.mq.Topics.Partitions(ctx, s.cfg.Topic)
	if err != nil {
		s.forsake(err)
		return 0, err
	}
	s.mu.Lock()
	grouped := s.grouped
	s.mu.Unlock()
	var commands rueidis.Commands
	for i := grouped; i < partitions; i++ {
		start := s.cfg.Start
		if grouped > 0 {
			start = "0" // what was published to a new partition before it was seen belongs to the group
		}
		commands = append(commands, s.createGroup(s.mq.Source(s.cfg.Topic, i), start))
	}
	if len(commands) > 0 {
		commands = append(commands, s.mq.Topics.Register(s.cfg.Topic, partitions)...) // an earlier version may have made the topic
	}
	for _, r := range s.mq.Client.DoMulti(ctx, commands...) {
		if err := r.Error(); err != nil && !stream.IsError(err, "BUSYGROUP") {
			return 0, model.Failure(ctx, "make group "+s.cfg.Group, err)
		}
	}
	s.mu.Lock()
	s.grouped = partitions
	s.mu.Unlock()
	return partitions, nil
}

func (s *Subscriber) createGroup(src core.Source, start string) rueidis.Completed {
	return s.mq.Client.B().XgroupCreate().Key(src.Stream()).Group(s.cfg.Group).Id(start).Mkstream().Build()
}

// forsake ends the member if the error tells that its topic was deleted. Nothing of it may be made again.
func (s *Subscriber) forsake(err error) {
	if !errors.Is(err, model.ErrUnknownTopic) || s.gone.Swap(true) {
		return
	}
	for _, w := range Living(s) {
		w.Lose()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end(err)
	}
}

// there tells whether the topic that this member works for was not deleted. A single stream has none.
func (s *Subscriber) there(ctx context.Context) bool {
	topic := s.cfg.Topic + s.ofTopic
	if topic == "" {
		return true
	}
	_, err := s.mq.Topics.Partitions(ctx, topic)
	s.forsake(err)
	return err == nil
}

// healGroup makes a stream and group that were lost, at 0: what is there was perhaps never read.
func (s *Subscriber) healGroup(ctx context.Context, src core.Source) {
	if !s.there(ctx) {
		return
	}
	err := s.mq.Client.Do(ctx, s.createGroup(src, "0")).Error()
	switch {
	case err == nil:
		s.mq.Observe(model.Event{Kind: model.EventHealed, Topic: src.Topic, Partition: src.Part, Group: s.cfg.Group, Member: s.cfg.Member, Count: 1})
	case !stream.IsError(err, "BUSYGROUP"):
		s.warn(ctx, "streammq: group cannot be made", err)
	}
}

// join notes the first heartbeat, and each one after which the group may have been lost.
func (s *Subscriber) join(ctx context.Context) (live []share.MemberView, dead []string, err error) {
	return s.beatAs(ctx, s.cfg.Lease, true)
}

// beat notes a heartbeat of a member that has joined, or with a ttl of 0 the end of this member, and returns the live members and the dead ones.
// Who is away has no heartbeat: nobody counts on it.
func (s *Subscriber) beat(ctx context.Context, ttl time.Duration) (live []share.MemberView, dead []string, err error) {
	return s.beatAs(ctx, ttl, s.cfg.StreamKey != "" && s.ofTopic == "")
}

// beatAs does that, and with join makes the member one of the group if it is none yet.
func (s *Subscriber) beatAs(ctx context.Context, ttl time.Duration, join bool) (live []share.MemberView, dead []string, err error) {
	if s.away != nil && s.away() {
		ttl = 0
	}
	answer, err := s.mq.Run(ctx, s.mq.Scripts.Beat, []string{s.here().Members(s.cfg.Group)},
		s.name, stream.Millis(ttl), strconv.Itoa(s.cfg.Cap), stream.Millis(forgetDead), stream.Flag(join), share.EncodePins(s.cfg.Pin)).ToArray()
	if err != nil {
		return nil, nil, model.Failure(ctx, "heartbeat", err)
	}
	fields, err := answer[0].AsStrSlice() // name, cap, ms, pins in turn
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i+3 < len(fields); i += 4 {
		m, err := share.DecodeMember(fields[i], fields[i+1], fields[i+2], fields[i+3])
		if err != nil {
			return nil, nil, err
		}
		live = append(live, m)
	}
	dead, err = answer[1].AsStrSlice()
	return live, dead, err
}

// take asks for a partition's lease and starts its worker.
func (s *Subscriber) take(ctx context.Context, partition int) error {
	if w := Owned(s)[partition]; w != nil && !w.lost.Load() {
		return nil // it hands back, and its last handler still runs
	}
	src := s.mq.Source(s.cfg.Topic, partition)
	asked := s.mq.Cfg.Now()
	epoch, err := s.mq.Run(ctx, s.mq.Scripts.LeaseTake, []string{src.Lease(s.cfg.Group), src.Epoch(s.cfg.Group)},
		s.name, stream.Millis(s.cfg.Lease)).ToString()
	if err != nil {
		return model.Failure(ctx, "take "+src.Stream(), err)
	}
	if epoch == "" {
		return nil
	}
	w := NewWorker(s, src, s.name, epoch)
	w.renewed = asked
	loop := loopOf(w).own
	if s.pull != nil {
		loop = s.pull(w)
	}
	s.launch(ctx, partition, w, loop)
	WakeMover(s, 0) // on a cluster nobody else looks at its retries
	return nil
}

// launch starts a worker, and takes it from the list and frees its lease when it ends.
func (s *Subscriber) launch(ctx context.Context, number int, w *Worker, loop func(context.Context) error) {
	s.mu.Lock()
	s.workers[number], s.alive[w] = w, true
	owned := len(s.workers)
	s.mu.Unlock()
	w.Ended = func(ctx context.Context) {
		if w.Epoch != "" {
			Release(s, ctx, w)
		}
		s.mu.Lock()
		delete(s.alive, w)
		if s.workers[number] == w {
			delete(s.workers, number)
		}
		left := len(s.workers)
		s.mu.Unlock()
		w.event(model.Event{Kind: model.EventOwned, Count: left})
	}
	w.event(model.Event{Kind: model.EventOwned, Count: owned})
	w.start(ctx, loop)
}

// Release frees the lease of a worker that has ended, if it is still its.
func Release(s *Subscriber, ctx context.Context, w *Worker) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(s.cfg.Renew, s.cfg.StopTimeout/2))
	defer cancel()
	keys := []string{w.Src.Lease(s.cfg.Group), w.Src.Epoch(s.cfg.Group)}
	if err := s.mq.Run(ctx, s.mq.Scripts.LeaseRelease, keys, s.name, w.Epoch, stream.Flag(s.gone.Load())).Error(); err != nil {
		s.warn(ctx, "streammq: release failed, the lease expires", err)
		return
	}
	// A name that holds nothing goes at once; one that does is the next owner's to empty.
	if _, _, err := RemoveConsumer(s.mq, ctx, w.Src, s.cfg.Group, s.name, "", JanitorConfig{}); err != nil {
		s.warn(ctx, "streammq: leaving a partition failed, the janitor removes the name", err)
	}
}

// RemoveConsumer checks and removes in one step; it also returns how many entries are the heir's now.
func RemoveConsumer(q *core.Core, ctx context.Context, src core.Source, group, name, heir string, c JanitorConfig) (removed bool, moved int, err error) {
	removed, moved, err = q.RemoveConsumer(ctx, q.Scripts.ConsumerRemove, stream.Removal{
		Key: src.Stream(), Group: group, Name: name, Heir: heir, MinIdle: c.MinIdle, MaxPending: c.MaxPending,
	})
	return removed, moved, model.Failure(ctx, fmt.Sprintf("remove consumer %s of %s", name, src.Stream()), err)
}

func NewWorker(s *Subscriber, src core.Source, consumer, epoch string) *Worker {
	w := &Worker{
		Reader: fence.Reader{
			Mq: s.mq, Src: src, Group: s.cfg.Group, Consumer: consumer, Epoch: epoch, Status: s.cfg.Status, Letters: s.cfg.DeadLetterStream,
			Format: s.cfg.Format, Deletes: s.cfg.Delete,
		},
		cfg: &s.cfg, member: s, Done: make(chan struct{}), renewed: s.mq.Cfg.Now(),
		began:  make([]atomic.Int64, s.cfg.Concurrency),
		inHand: inHand{promised: map[*settlement]bool{}, freed: make(chan struct{}, 1)},
	}
	w.stopping, w.Stop = context.WithCancel(context.Background())
	w.acks = &fence.Acks{Reader: &w.Reader, Delay: model.DefaultAckDelay, Event: w.event}
	return w
}
