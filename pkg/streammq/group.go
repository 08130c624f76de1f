package streammq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

const forgetDead = 24 * time.Hour // after it a dead member's name is no sign any more that its entries are free

// startTopic makes the groups and starts the loops of a member.
func (s *Subscriber) startTopic(ctx, loops context.Context, taking, running *sync.WaitGroup) error {
	partitions, err := s.growGroups(ctx)
	if err == nil {
		err = s.refuseForeign(ctx, partitions)
	}
	if err != nil && !isPassing(err) {
		return err
	}
	every(loops, running, s.cfg.Renew, s.renew)
	taking.Go(func() { s.rebalanceAll(ctx) })
	s.startKeepers(ctx, taking)
	return nil
}

// refuseForeign returns ErrForeignGroup when a partition is leased to a program that knows no epochs.
func (s *Subscriber) refuseForeign(ctx context.Context, partitions int) error {
	commands := make(rueidis.Commands, 0, 2*partitions)
	for i := range partitions {
		src := s.mq.source(s.cfg.Topic, i)
		commands = append(commands, s.mq.Client.B().Get().Key(src.lease(s.cfg.Group)).Build(),
			s.mq.Client.B().Exists().Key(src.epoch(s.cfg.Group)).Build()) // after the lease: ours comes with its epoch, in one step
	}
	results := s.mq.Client.DoMulti(ctx, commands...)
	for i := range partitions {
		owner, err := results[2*i].ToString()
		if rueidis.IsRedisNil(err) {
			continue
		}
		epoch, err2 := results[2*i+1].AsBool()
		if err := errors.Join(err, err2); err != nil {
			return failure(ctx, "look at the leases of group "+s.cfg.Group, err)
		}
		if !epoch {
			return fmt.Errorf("group %s of topic %s: %w: %q has partition %d: stop it, or take another group",
				s.cfg.Group, s.cfg.Topic, ErrForeignGroup, clip(owner, 64), i)
		}
	}
	return nil
}

// startKeepers starts what tidies up: the mover of retries and the retention.
func (s *Subscriber) startKeepers(ctx context.Context, taking *sync.WaitGroup) {
	if s.cfg.RetryMode == RetryRepublish {
		taking.Go(func() { s.moveAll(ctx) })
	}
	if s.cfg.Retention != (Retention{}) || s.cfg.Delete != DeleteNever || s.cfg.DeadLetterRetention != (Retention{}) {
		every(ctx, taking, s.cfg.TrimEvery, s.trimOwned)
	}
	if s.cfg.StreamKey == "" && s.cfg.DeadLetterStream == "" && s.mq.cfg.Layout == LayoutSingle {
		every(ctx, taking, s.cfg.TrimEvery, s.keepApart)
	}
	if s.cfg.Janitor.Interval > 0 {
		every(ctx, taking, s.cfg.Janitor.Interval, s.clean)
	}
}

func (s *Subscriber) trimOwned(ctx context.Context) {
	for _, w := range s.owned() {
		if _, err := s.mq.trim(ctx, w.src, s.cfg.Retention); err != nil && ctx.Err() == nil {
			s.warn(ctx, "streammq: trim failed", err)
		}
		// Of a stream of dead letters that partitions share, the first one's owner takes care.
		if s.cfg.DeadLetterRetention == (Retention{}) || w.src.part > 0 && (!w.src.apart() || s.cfg.DeadLetterStream != "") {
			continue
		}
		l := letterPlace{mq: s.mq, topic: w.src.topic, single: w.src.single, named: s.cfg.DeadLetterStream}
		if _, err := l.trim(ctx, w.src, s.cfg.DeadLetterRetention); err != nil && ctx.Err() == nil {
			s.warn(ctx, "streammq: trim of dead letters failed", err)
		}
	}
}

func (s *Subscriber) warn(ctx context.Context, text string, err error) {
	s.mq.cfg.Log.WarnContext(ctx, text, slog.String("topic", s.cfg.Topic+s.cfg.StreamKey), slog.String("group", s.cfg.Group),
		slog.String("member", s.name), slog.Any("error", err))
}

// growGroups makes the group on all partitions that this member has not seen yet, and returns their number.
func (s *Subscriber) growGroups(ctx context.Context) (int, error) {
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
		commands = append(commands, s.createGroup(s.mq.source(s.cfg.Topic, i), start))
	}
	if len(commands) > 0 {
		commands = append(commands, s.mq.register(s.cfg.Topic, partitions)...) // an earlier version may have made the topic
	}
	for _, r := range s.mq.Client.DoMulti(ctx, commands...) {
		if err := r.Error(); err != nil && !stream.IsError(err, "BUSYGROUP") {
			return 0, failure(ctx, "make group "+s.cfg.Group, err)
		}
	}
	s.mu.Lock()
	s.grouped = partitions
	s.mu.Unlock()
	return partitions, nil
}

func (s *Subscriber) createGroup(src source, start string) rueidis.Completed {
	return s.mq.Client.B().XgroupCreate().Key(src.stream()).Group(s.cfg.Group).Id(start).Mkstream().Build()
}

// forsake ends the member if the error tells that its topic was deleted. Nothing of it may be made again.
func (s *Subscriber) forsake(err error) {
	if !errors.Is(err, ErrUnknownTopic) || s.gone.Swap(true) {
		return
	}
	for _, w := range s.living() {
		w.lose()
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
func (s *Subscriber) healGroup(ctx context.Context, src source) {
	if !s.there(ctx) {
		return
	}
	err := s.mq.Client.Do(ctx, s.createGroup(src, "0")).Error()
	switch {
	case err == nil:
		s.mq.observe(Event{Kind: EventHealed, Topic: src.topic, Partition: src.part, Group: s.cfg.Group, Member: s.cfg.Member, Count: 1})
	case !stream.IsError(err, "BUSYGROUP"):
		s.warn(ctx, "streammq: group cannot be made", err)
	}
}

// join notes the first heartbeat, and each one after which the group may have been lost.
func (s *Subscriber) join(ctx context.Context) (live []memberView, dead []string, err error) {
	return s.beatAs(ctx, s.cfg.Lease, true)
}

// beat notes a heartbeat of a member that has joined, or with a ttl of 0 the end of this member, and returns the live members and the dead ones.
// Who is away has no heartbeat: nobody counts on it.
func (s *Subscriber) beat(ctx context.Context, ttl time.Duration) (live []memberView, dead []string, err error) {
	return s.beatAs(ctx, ttl, s.cfg.StreamKey != "" && s.ofTopic == "")
}

// beatAs does that, and with join makes the member one of the group if it is none yet.
func (s *Subscriber) beatAs(ctx context.Context, ttl time.Duration, join bool) (live []memberView, dead []string, err error) {
	if s.away != nil && s.away() {
		ttl = 0
	}
	answer, err := s.mq.Run(ctx, s.mq.scripts.Beat, []string{s.here().members(s.cfg.Group)},
		s.name, stream.Millis(ttl), strconv.Itoa(s.cfg.Cap), stream.Millis(forgetDead), stream.Flag(join), encodePins(s.cfg.Pin)).ToArray()
	if err != nil {
		return nil, nil, failure(ctx, "heartbeat", err)
	}
	fields, err := answer[0].AsStrSlice() // name, cap, ms, pins in turn
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i+3 < len(fields); i += 4 {
		m, err := decodeMember(fields[i], fields[i+1], fields[i+2], fields[i+3])
		if err != nil {
			return nil, nil, err
		}
		live = append(live, m)
	}
	dead, err = answer[1].AsStrSlice()
	return live, dead, err
}

// here is the source that keys of the whole topic are named after.
func (s *Subscriber) here() source {
	if s.cfg.StreamKey != "" {
		return source{layout: s.mq.cfg.Layout, topic: s.cfg.StreamKey, single: true}
	}
	return s.mq.source(s.cfg.Topic, 0)
}

// take asks for a partition's lease and starts its worker.
func (s *Subscriber) take(ctx context.Context, partition int) error {
	if w := s.owned()[partition]; w != nil && !w.lost.Load() {
		return nil // it hands back, and its last handler still runs
	}
	src := s.mq.source(s.cfg.Topic, partition)
	asked := s.mq.cfg.Now()
	epoch, err := s.mq.Run(ctx, s.mq.scripts.LeaseTake, []string{src.lease(s.cfg.Group), src.epoch(s.cfg.Group)},
		s.name, stream.Millis(s.cfg.Lease)).ToString()
	if err != nil {
		return failure(ctx, "take "+src.stream(), err)
	}
	if epoch == "" {
		return nil
	}
	w := s.newWorker(src, s.name, epoch)
	w.renewed = asked
	loop := w.own
	if s.pull != nil {
		loop = s.pull(w)
	}
	s.launch(ctx, partition, w, loop)
	s.wakeMover(0) // on a cluster nobody else looks at its retries
	return nil
}

// launch starts a worker, and takes it from the list and frees its lease when it ends.
func (s *Subscriber) launch(ctx context.Context, number int, w *worker, loop func(context.Context) error) {
	s.mu.Lock()
	s.workers[number], s.alive[w] = w, true
	owned := len(s.workers)
	s.mu.Unlock()
	w.ended = func(ctx context.Context) {
		if w.epoch != "" {
			s.release(ctx, w)
		}
		s.mu.Lock()
		delete(s.alive, w)
		if s.workers[number] == w {
			delete(s.workers, number)
		}
		left := len(s.workers)
		s.mu.Unlock()
		w.event(Event{Kind: EventOwned, Count: left})
	}
	w.event(Event{Kind: EventOwned, Count: owned})
	w.start(ctx, loop)
}

// release frees the lease of a worker that has ended, if it is still its.
func (s *Subscriber) release(ctx context.Context, w *worker) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(s.cfg.Renew, s.cfg.StopTimeout/2))
	defer cancel()
	keys := []string{w.src.lease(s.cfg.Group), w.src.epoch(s.cfg.Group)}
	if err := s.mq.Run(ctx, s.mq.scripts.LeaseRelease, keys, s.name, w.epoch, stream.Flag(s.gone.Load())).Error(); err != nil {
		s.warn(ctx, "streammq: release failed, the lease expires", err)
		return
	}
	// A name that holds nothing goes at once; one that does is the next owner's to empty.
	if _, _, err := s.mq.removeConsumer(ctx, w.src, s.cfg.Group, s.name, "", JanitorConfig{}); err != nil {
		s.warn(ctx, "streammq: leaving a partition failed, the janitor removes the name", err)
	}
}

// renew prolongs the heartbeat and all leases. A lease that is lost, or was not confirmed for its whole time, ends its
// worker; one whose handler does not return in its time is left to expire.
func (s *Subscriber) renew(ctx context.Context) {
	// What was asked is waited for, also at a stop: an abandoned heartbeat might arrive after the member left.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease/2)
	defer cancel()
	asked := s.mq.cfg.Now()
	switch members, _, err := s.beat(call, s.cfg.Lease); {
	case err == nil && s.changed(members):
		s.lookNow()
	case err != nil && ctx.Err() == nil:
		s.warn(ctx, "streammq: heartbeat failed", err)
	}
	var workers []*worker
	var calls []stream.Call
	for _, w := range s.owned() {
		if s.hangs(w, asked) {
			w.lose()
		}
		if w.lost.Load() {
			continue
		}
		workers = append(workers, w)
		keys := []string{w.src.lease(s.cfg.Group), w.src.epoch(s.cfg.Group)}
		args := []string{s.name, w.epoch, stream.Millis(s.cfg.Lease)}
		calls = append(calls, stream.Call{Script: s.mq.scripts.LeaseRenew, Keys: keys, Args: args})
	}
	for i, r := range s.mq.RunAll(call, calls) {
		w := workers[i]
		kept, err := r.AsInt64()
		switch {
		case err == nil && kept == 1:
			w.renewed = asked
		case err == nil, s.mq.cfg.Now().Sub(w.renewed) >= s.cfg.Lease:
			w.lose()
			s.lookNow()
		}
	}
}

// hangs tells of a handler that was to end a whole lease ago.
func (s *Subscriber) hangs(w *worker, now time.Time) bool {
	began := w.longest()
	return s.cfg.HandlerTimeout > 0 && began > 0 && s.mq.elapsed(now)-began > (s.cfg.HandlerTimeout+s.cfg.Lease).Milliseconds()
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
	own, err := s.mq.lettersApart(ctx, src)
	if err == nil && own {
		err = s.mq.partDeadLetters(ctx, src)
	}
	if err != nil && ctx.Err() == nil {
		s.warn(ctx, "streammq: looking for dead letters among those of Java failed", err)
	}
}
