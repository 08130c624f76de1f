package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/dlq"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/share"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const forgetDead = 24 * time.Hour // after it a dead member's name is no sign any more that its entries are free

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

func (s *Subscriber) warn(ctx context.Context, text string, err error) {
	s.mq.Cfg.Log.WarnContext(ctx, text, slog.String("topic", s.cfg.Topic+s.cfg.StreamKey), slog.String("group", s.cfg.Group),
		slog.String("member", s.name), slog.Any("error", err))
}

// GrowGroups makes the group on all partitions that this member has not seen yet, and returns their number.
func GrowGroups(s *Subscriber, ctx context.Context) (int, error) {
	partitions, err := s.mq.Partitions(ctx, s.cfg.Topic)
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
		commands = append(commands, s.mq.Register(s.cfg.Topic, partitions)...) // an earlier version may have made the topic
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
	_, err := s.mq.Partitions(ctx, topic)
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

// here is the source that keys of the whole topic are named after.
func (s *Subscriber) here() core.Source {
	if s.cfg.StreamKey != "" {
		return core.Source{Layout: s.mq.Cfg.Layout, Topic: s.cfg.StreamKey, Single: true}
	}
	return s.mq.Source(s.cfg.Topic, 0)
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
	loop := w.own
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

// renew prolongs the heartbeat and all leases. A lease that is lost, or was not confirmed for its whole time, ends its
// worker; one whose handler does not return in its time is left to expire.
func (s *Subscriber) renew(ctx context.Context) {
	// What was asked is waited for, also at a stop: an abandoned heartbeat might arrive after the member left.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease/2)
	defer cancel()
	asked := s.mq.Cfg.Now()
	switch members, _, err := s.beat(call, s.cfg.Lease); {
	case err == nil && s.changed(members):
		s.lookNow()
	case err != nil && ctx.Err() == nil:
		s.warn(ctx, "streammq: heartbeat failed", err)
	}
	var workers []*Worker
	var calls []stream.Call
	for _, w := range Owned(s) {
		if s.hangs(w, asked) {
			w.Lose()
		}
		if w.lost.Load() {
			continue
		}
		workers = append(workers, w)
		keys := []string{w.Src.Lease(s.cfg.Group), w.Src.Epoch(s.cfg.Group)}
		args := []string{s.name, w.Epoch, stream.Millis(s.cfg.Lease)}
		calls = append(calls, stream.Call{Script: s.mq.Scripts.LeaseRenew, Keys: keys, Args: args})
	}
	for i, r := range s.mq.RunAll(call, calls) {
		w := workers[i]
		kept, err := r.AsInt64()
		switch {
		case err == nil && kept == 1:
			w.renewed = asked
		case err == nil, s.mq.Cfg.Now().Sub(w.renewed) >= s.cfg.Lease:
			w.Lose()
			s.lookNow()
		}
	}
}

// hangs tells of a handler that was to end a whole lease ago.
func (s *Subscriber) hangs(w *Worker, now time.Time) bool {
	began := w.longest()
	return s.cfg.HandlerTimeout > 0 && began > 0 && s.mq.Elapsed(now)-began > (s.cfg.HandlerTimeout+s.cfg.Lease).Milliseconds()
}

// leave takes this member out of its group.
func (s *Subscriber) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StopTimeout)
	defer cancel()
	if _, _, err := s.beat(ctx, 0); err != nil {
		s.warn(ctx, "streammq: leaving failed, the heartbeat expires", err)
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
