package redisq

import (
	"context"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	leaveTimeout  = 3 * time.Second
	zombiesLogged = 10 // names in one log line
)

// Name implements ingestq.Consumer.
func (q *Queue) Name() string { return q.name }

// KeepAlive makes sure that the heartbeat was written lately: no member holds a delivery without one.
func (q *Queue) KeepAlive(ctx context.Context) error {
	q.beatMu.Lock()
	age := q.now().Sub(q.beaten)
	fresh := !q.beaten.IsZero() && age >= 0 && age < q.cfg.HeartbeatTTL/ingestq.BeatsPerTTL
	q.beatMu.Unlock()
	if fresh {
		return nil
	}
	return failure(ctx, "heartbeat", q.beat(ctx))
}

func (q *Queue) beat(ctx context.Context) error {
	now := q.now()
	key := q.aliveKey(q.name)
	command := q.client.B().Set().Key(key).Value("1").PxMilliseconds(q.cfg.HeartbeatTTL.Milliseconds()).Build()
	if err := do(ctx, q.client, command.ToRetryable()).Error(); err != nil {
		return err
	}
	q.beatMu.Lock()
	defer q.beatMu.Unlock()
	q.beaten = now
	return nil
}

// Ping implements ingestq.Consumer: it writes the heartbeat, since a full or read-only Redis answers a PING too.
func (q *Queue) Ping(ctx context.Context) error {
	return failure(ctx, "ping", q.beat(ctx))
}

// aliveKey is a string "1" that exists while the member lives; TTL Config.HeartbeatTTL, written anew every third of it.
// It begins with the stream's key, or what several streams have in common, so that it is found beside it and two groups or
// streams never share one. On a cluster it lies in the stream's slot, for scripts touch both: {stream}:alive:group:member.
func (q *Queue) aliveKey(consumer string) string {
	return q.beats + ":alive:" + q.cfg.Group + ":" + consumer
}

// Run implements ingestq.Consumer. It is to end after the last Read and Ack.
func (q *Queue) Run(ctx context.Context) error {
	ingestq.Member{
		Queue: "redisq", HeartbeatTTL: q.cfg.HeartbeatTTL, ZombieInterval: q.cfg.ZombieInterval, Log: q.log,
		Beat:          func(ctx context.Context) error { return failure(ctx, "heartbeat", q.beat(ctx)) },
		RemoveZombies: func(ctx context.Context) error { _, err := q.RemoveZombies(ctx); return err },
	}.Live(ctx)
	q.Leave(context.WithoutCancel(ctx))
	return nil
}

// Leave ends the heartbeat, and the membership if nothing is pending. A Redis that does not answer is no error:
// it is logged, the key ends by itself and the member is removed as a zombie.
func (q *Queue) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	crash.Point("worker.before_leave")
	left, _, err := q.scripts.RemoveConsumer(ctx, stream.Loaded().ConsumerRemove, stream.Removal{
		Key: q.cfg.StreamKey, Group: q.cfg.Group, Name: q.name, Heartbeat: q.aliveKey(q.name), Leaves: true,
	})
	if err != nil {
		q.log.WarnContext(ctx, "redisq: did not leave the group", slog.Any("error", failure(ctx, "leave", err)))
		return
	}
	q.log.InfoContext(ctx, "redisq: stopped", slog.String("consumer", q.name), slog.Bool("left_group", left))
}

// RemoveZombies removes members without a heartbeat that have been idle for ZombieMinIdle and hold at most
// ZombieMaxPending entries, which become this member's with their idle times; it returns how many went.
// With ZombieDryRun it only counts and logs them.
func (q *Queue) RemoveZombies(ctx context.Context) (int, error) {
	candidates, err := ask(ctx, q, "list members of "+q.cfg.Group, q.idleMembers)
	if err != nil {
		return 0, err
	}
	gone := candidates[:0]
	for _, name := range candidates {
		var removed bool
		if removed, err = q.removeOne(ctx, name); err != nil {
			break // the next round goes on
		}
		if removed {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		q.log.InfoContext(ctx, "redisq: zombie members", slog.Int("count", len(gone)), slog.Bool("dry_run", q.cfg.ZombieDryRun),
			slog.Any("first", gone[:min(len(gone), zombiesLogged)]))
	}
	return len(gone), failure(ctx, "remove members of "+q.cfg.Group, err)
}

// idleMembers are those worth a closer look; the script decides.
func (q *Queue) idleMembers(ctx context.Context) ([]string, error) {
	consumers, err := stream.Consumers(ctx, q.client, q.cfg.StreamKey, q.cfg.Group)
	if err != nil {
		return nil, err
	}
	var idle []string
	for _, c := range consumers {
		if c.Name != q.name && c.Idle >= q.cfg.ZombieMinIdle && c.Pending <= int64(q.cfg.ZombieMaxPending) {
			idle = append(idle, c.Name)
		}
	}
	return idle, nil
}

func (q *Queue) removeOne(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key := q.aliveKey(name)
	if q.cfg.ZombieDryRun {
		alive, err := q.client.Do(ctx, q.client.B().Exists().Key(key).Build()).AsInt64()
		return err == nil && alive == 0, err
	}
	removed, _, err := q.scripts.RemoveConsumer(ctx, stream.Loaded().ConsumerRemove, stream.Removal{
		Key: q.cfg.StreamKey, Group: q.cfg.Group, Name: name, Heartbeat: key, Heir: q.name,
		MinIdle: q.cfg.ZombieMinIdle, MaxPending: q.cfg.ZombieMaxPending,
	})
	if removed {
		q.metrics.zombies.WithLabelValues(q.cfg.StreamKey).Inc()
	}
	return removed, err
}
