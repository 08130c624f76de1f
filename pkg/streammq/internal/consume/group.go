package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
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

// beat notes a heartbeat of a member that has joined, or with a ttl of 0 the end of this member, and returns the live members and the dead ones.
// Who is away has no heartbeat: nobody counts on it.
func (s *Subscriber) beat(ctx context.Context, ttl time.Duration) (live []share.MemberView, dead []string, err error) {
	return s.beatAs(ctx, ttl, s.cfg.StreamKey != "" && s.ofTopic == "")
}

// beatAs does that, and with join makes the member one of the group if it is none yet: so do the first heartbeat, and each one after
// which the group may have been lost.
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

// rebalanceAll looks at how the partitions are shared until ctx ends: every Rebalance, and at once when something is due
// or was changed; see pace.
func (s *Subscriber) rebalanceAll(ctx context.Context) {
	p := share.Pace{Interval: s.cfg.Rebalance}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.looker:
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return
		}
		// What was begun is ended: a lease that was taken without its answer would be nobody's until it expires.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease)
		v, err := s.rebalance(call, ctx)
		cancel()
		if err != nil {
			s.warn(ctx, "streammq: rebalance failed", err)
			timer.Reset(p.Soon())
			continue
		}
		timer.Reset(p.Next(v, s.name, rand.Float64()))
	}
}

// lookNow wakes rebalanceAll.
func (s *Subscriber) lookNow() {
	select {
	case s.looker <- struct{}{}:
	default: // it will look
	}
}

// look notes this member's heartbeat and reads heartbeats and leases.
func (s *Subscriber) look(ctx context.Context, partitions int) (share.View, error) {
	members, _, err := s.beatAs(ctx, s.cfg.Lease, true)
	if err != nil {
		return share.View{}, err
	}
	s.remember(members)
	commands := make(rueidis.Commands, partitions)
	for i := range commands {
		commands[i] = s.mq.Client.B().Get().Key(s.leaseKey(i)).Build()
	}
	v := share.View{Leases: make([]string, partitions), Members: members}
	for i, r := range s.mq.Client.DoMulti(ctx, commands...) {
		owner, err := r.ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return share.View{}, model.Failure(ctx, "read leases", err)
		}
		v.Leases[i] = owner
	}
	v.Expiry, err = s.deadLeases(ctx, v)
	return v, err
}

// deadLeases is the time until the next lease of a member without a heartbeat expires; -1 when the dead have none.
func (s *Subscriber) deadLeases(ctx context.Context, v share.View) (time.Duration, error) {
	live := map[string]bool{"": true}
	for _, m := range v.Members {
		live[m.Name] = true
	}
	var commands rueidis.Commands
	for i, owner := range v.Leases {
		if !live[owner] {
			commands = append(commands, s.mq.Client.B().Pttl().Key(s.leaseKey(i)).Build())
		}
	}
	next := time.Duration(-1)
	for _, r := range s.mq.Client.DoMulti(ctx, commands...) {
		ms, err := r.AsInt64()
		if err != nil {
			return next, model.Failure(ctx, "read leases", err)
		}
		// A lease that is gone meanwhile is free now; one without a TTL was written by a stranger's hand.
		if left := max(0, time.Duration(ms)*time.Millisecond); ms != -1 && (next < 0 || left < next) {
			next = left
		}
	}
	return next, nil
}

func (s *Subscriber) leaseKey(partition int) string {
	return s.mq.Source(s.cfg.Topic, partition).Lease(s.cfg.Group)
}

// remember notes who was alive at the last look; changed tells whether others are now.
func (s *Subscriber) remember(members []share.MemberView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = share.NamesOf(members)
}

func (s *Subscriber) changed(members []share.MemberView) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked != nil && !slices.Equal(s.looked, share.NamesOf(members))
}

// rebalance looks once, and releases or takes what the plan says. It returns what it saw.
// Once running has ended it takes nothing: what is free then may be what this member has just given back to the others.
func (s *Subscriber) rebalance(ctx, running context.Context) (share.View, error) {
	partitions, err := GrowGroups(s, ctx)
	if err != nil {
		return share.View{}, err
	}
	workers := Owned(s) // before the look: the lease of one that ends meanwhile is seen, and has a worker
	v, err := s.look(ctx, partitions)
	if err != nil {
		return share.View{}, err
	}
	release, take := v.Plan(s.name)
	for i, owner := range v.Leases {
		switch w := workers[i]; {
		case owner == s.name && (w == nil || w.lost.Load()):
			take = append(take, i) // the answer to a taking was lost
		case w != nil && owner != s.name && !w.lost.Load():
			s.mq.Cfg.Log.InfoContext(ctx, "streammq: lease is another's", slog.String("stream", w.Src.Stream()), slog.String("owner", owner))
			w.Lose()
		}
	}
	for _, i := range release {
		if w := workers[i]; w != nil {
			w.Stop()
		}
	}
	for _, i := range take {
		select {
		case <-running.Done():
			return v, nil
		default:
		}
		if err := s.take(ctx, i); err != nil {
			return share.View{}, err
		}
	}
	seen := model.Event{Topic: s.cfg.Topic, Partition: -1, Group: s.cfg.Group, Member: s.cfg.Member}
	seen.Kind, seen.Count = model.EventUnowned, v.Unowned()
	s.mq.Observe(seen)
	seen.Kind, seen.Count = model.EventPinConflict, v.Conflicts()
	s.mq.Observe(seen)
	return v, nil
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
