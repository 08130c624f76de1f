package consume

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/share"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// balancer keeps the share of a member in the partitions of its group.
type balancer struct{ *Subscriber }

// rebalanceAll looks at how the partitions are shared until ctx ends: every Rebalance, and at once when something is due
// or was changed; see pace.
func (b balancer) rebalanceAll(ctx context.Context) {
	p := share.Pace{Interval: b.cfg.Rebalance}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.looker:
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return
		}
		// What was begun is ended: a lease that was taken without its answer would be nobody's until it expires.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.Lease)
		v, err := b.rebalance(call, ctx)
		cancel()
		if err != nil {
			b.warn(ctx, "streammq: rebalance failed", err)
			timer.Reset(p.Soon())
			continue
		}
		timer.Reset(p.Next(v, b.name, rand.Float64()))
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
func (b balancer) look(ctx context.Context, partitions int) (share.View, error) {
	members, _, err := b.join(ctx)
	if err != nil {
		return share.View{}, err
	}
	b.remember(members)
	commands := make(rueidis.Commands, partitions)
	for i := range commands {
		commands[i] = b.mq.Client.B().Get().Key(b.leaseKey(i)).Build()
	}
	v := share.View{Leases: make([]string, partitions), Members: members}
	for i, r := range b.mq.Client.DoMulti(ctx, commands...) {
		owner, err := r.ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return share.View{}, model.Failure(ctx, "read leases", err)
		}
		v.Leases[i] = owner
	}
	v.Expiry, err = b.deadLeases(ctx, v)
	return v, err
}

// deadLeases is the time until the next lease of a member without a heartbeat expires; -1 when the dead have none.
func (b balancer) deadLeases(ctx context.Context, v share.View) (time.Duration, error) {
	live := map[string]bool{"": true}
	for _, m := range v.Members {
		live[m.Name] = true
	}
	var commands rueidis.Commands
	for i, owner := range v.Leases {
		if !live[owner] {
			commands = append(commands, b.mq.Client.B().Pttl().Key(b.leaseKey(i)).Build())
		}
	}
	next := time.Duration(-1)
	for _, r := range b.mq.Client.DoMulti(ctx, commands...) {
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

func (b balancer) leaseKey(partition int) string {
	return b.mq.Source(b.cfg.Topic, partition).Lease(b.cfg.Group)
}

// remember notes who was alive at the last look; changed tells whether others are now.
func (b balancer) remember(members []share.MemberView) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked = share.NamesOf(members)
}

func (b balancer) changed(members []share.MemberView) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.looked != nil && !slices.Equal(b.looked, share.NamesOf(members))
}

// rebalance looks once, and releases or takes what the plan says. It returns what it saw.
// Once running has ended it takes nothing: what is free then may be what this member has just given back to the others.
func (b balancer) rebalance(ctx, running context.Context) (share.View, error) {
	partitions, err := GrowGroups(b.Subscriber, ctx)
	if err != nil {
		return share.View{}, err
	}
	workers := Owned(b.Subscriber) // before the look: the lease of one that ends meanwhile is seen, and has a worker
	v, err := b.look(ctx, partitions)
	if err != nil {
		return share.View{}, err
	}
	release, take := v.Plan(b.name)
	for i, owner := range v.Leases {
		switch w := workers[i]; {
		case owner == b.name && (w == nil || w.lost.Load()):
			take = append(take, i) // the answer to a taking was lost
		case w != nil && owner != b.name && !w.lost.Load():
			b.mq.Cfg.Log.InfoContext(ctx, "streammq: lease is another's", slog.String("stream", w.Src.Stream()), slog.String("owner", owner))
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
		if err := b.take(ctx, i); err != nil {
			return share.View{}, err
		}
	}
	seen := model.Event{Topic: b.cfg.Topic, Partition: -1, Group: b.cfg.Group, Member: b.cfg.Member}
	seen.Kind, seen.Count = model.EventUnowned, v.Unowned()
	b.mq.Observe(seen)
	seen.Kind, seen.Count = model.EventPinConflict, v.Conflicts()
	b.mq.Observe(seen)
	return v, nil
}

// renew prolongs the heartbeat and all leases. A lease that is lost, or was not confirmed for its whole time, ends its
// worker; one whose handler does not return in its time is left to expire.
func (b balancer) renew(ctx context.Context) {
	// What was asked is waited for, also at a stop: an abandoned heartbeat might arrive after the member left.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.Lease/2)
	defer cancel()
	asked := b.mq.Cfg.Now()
	switch members, _, err := b.beat(call, b.cfg.Lease); {
	case err == nil && b.changed(members):
		b.lookNow()
	case err != nil && ctx.Err() == nil:
		b.warn(ctx, "streammq: heartbeat failed", err)
	}
	var workers []*Worker
	var calls []stream.Call
	for _, w := range Owned(b.Subscriber) {
		if b.hangs(w, asked) {
			w.Lose()
		}
		if w.lost.Load() {
			continue
		}
		workers = append(workers, w)
		keys := []string{w.Src.Lease(b.cfg.Group), w.Src.Epoch(b.cfg.Group)}
		args := []string{b.name, w.Epoch, stream.Millis(b.cfg.Lease)}
		calls = append(calls, stream.Call{Script: b.mq.Scripts.LeaseRenew, Keys: keys, Args: args})
	}
	for i, r := range b.mq.RunAll(call, calls) {
		w := workers[i]
		kept, err := r.AsInt64()
		switch {
		case err == nil && kept == 1:
			w.renewed = asked
		case err == nil, b.mq.Cfg.Now().Sub(w.renewed) >= b.cfg.Lease:
			w.Lose()
			b.lookNow()
		}
	}
}

// hangs tells of a handler that was to end a whole lease ago.
func (b balancer) hangs(w *Worker, now time.Time) bool {
	began := w.longest()
	return b.cfg.HandlerTimeout > 0 && began > 0 && b.mq.Elapsed(now)-began > (b.cfg.HandlerTimeout+b.cfg.Lease).Milliseconds()
}
