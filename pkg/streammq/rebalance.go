package streammq

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

// rebalanceAll looks at how the partitions are shared until ctx ends: every Rebalance, and at once when something is due
// or was changed; see pace.
func (s *Subscriber) rebalanceAll(ctx context.Context) {
	p := pace{interval: s.cfg.Rebalance}
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
			timer.Reset(p.soon())
			continue
		}
		timer.Reset(p.next(v, s.name, rand.Float64()))
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
func (s *Subscriber) look(ctx context.Context, partitions int) (view, error) {
	members, _, err := s.join(ctx)
	if err != nil {
		return view{}, err
	}
	s.remember(members)
	commands := make(rueidis.Commands, partitions)
	for i := range commands {
		commands[i] = s.mq.Client.B().Get().Key(s.leaseKey(i)).Build()
	}
	v := view{leases: make([]string, partitions), members: members}
	for i, r := range s.mq.Client.DoMulti(ctx, commands...) {
		owner, err := r.ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return view{}, failure(ctx, "read leases", err)
		}
		v.leases[i] = owner
	}
	v.expiry, err = s.deadLeases(ctx, v)
	return v, err
}

// deadLeases is the time until the next lease of a member without a heartbeat expires; -1 when the dead have none.
func (s *Subscriber) deadLeases(ctx context.Context, v view) (time.Duration, error) {
	live := map[string]bool{"": true}
	for _, m := range v.members {
		live[m.name] = true
	}
	var commands rueidis.Commands
	for i, owner := range v.leases {
		if !live[owner] {
			commands = append(commands, s.mq.Client.B().Pttl().Key(s.leaseKey(i)).Build())
		}
	}
	next := time.Duration(-1)
	for _, r := range s.mq.Client.DoMulti(ctx, commands...) {
		ms, err := r.AsInt64()
		if err != nil {
			return next, failure(ctx, "read leases", err)
		}
		// A lease that is gone meanwhile is free now; one without a TTL was written by a stranger's hand.
		if left := max(0, time.Duration(ms)*time.Millisecond); ms != -1 && (next < 0 || left < next) {
			next = left
		}
	}
	return next, nil
}

func (s *Subscriber) leaseKey(partition int) string {
	return s.mq.source(s.cfg.Topic, partition).lease(s.cfg.Group)
}

// remember notes who was alive at the last look; changed tells whether others are now.
func (s *Subscriber) remember(members []memberView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = namesOf(members)
}

func (s *Subscriber) changed(members []memberView) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked != nil && !slices.Equal(s.looked, namesOf(members))
}

// rebalance looks once, and releases or takes what the plan says. It returns what it saw.
// Once running has ended it takes nothing: what is free then may be what this member has just given back to the others.
func (s *Subscriber) rebalance(ctx, running context.Context) (view, error) {
	partitions, err := s.growGroups(ctx)
	if err != nil {
		return view{}, err
	}
	workers := s.owned() // before the look: the lease of one that ends meanwhile is seen, and has a worker
	v, err := s.look(ctx, partitions)
	if err != nil {
		return view{}, err
	}
	release, take := v.plan(s.name)
	for i, owner := range v.leases {
		switch w := workers[i]; {
		case owner == s.name && (w == nil || w.lost.Load()):
			take = append(take, i) // the answer to a taking was lost
		case w != nil && owner != s.name && !w.lost.Load():
			s.mq.cfg.Log.InfoContext(ctx, "streammq: lease is another's", slog.String("stream", w.src.stream()), slog.String("owner", owner))
			w.lose()
		}
	}
	for _, i := range release {
		if w := workers[i]; w != nil {
			w.stop()
		}
	}
	for _, i := range take {
		select {
		case <-running.Done():
			return v, nil
		default:
		}
		if err := s.take(ctx, i); err != nil {
			return view{}, err
		}
	}
	seen := Event{Topic: s.cfg.Topic, Partition: -1, Group: s.cfg.Group, Member: s.cfg.Member}
	seen.Kind, seen.Count = EventUnowned, v.unowned()
	s.mq.observe(seen)
	seen.Kind, seen.Count = EventPinConflict, v.conflicts()
	s.mq.observe(seen)
	return v, nil
}
