package redisq

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	leaveTimeout  = 3 * time.Second
	zombiesLogged = 10 // names in one log line
)

// Run implements ingestq.Consumer. It is to end after the last Read and Ack.
func (q *Queue) Run(ctx context.Context) error {
	ingestq.Member{
		Queue: "redisq", HeartbeatTTL: q.cfg.HeartbeatTTL, ZombieInterval: q.cfg.ZombieInterval, Log: q.log,
		Beat:          func(ctx context.Context) error { return failure(ctx, "heartbeat", q.beat(ctx)) },
		RemoveZombies: func(ctx context.Context) error { _, err := q.RemoveZombies(ctx); return err },
	}.Live(ctx)
	q.leave(context.WithoutCancel(ctx))
	return nil
}

// leave ends the heartbeat, and the membership if nothing is pending. A Redis that does not answer is no error:
// the key ends by itself and the member is removed as a zombie.
func (q *Queue) leave(ctx context.Context) {
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
	var candidates []string
	err := q.healing(ctx, func() (err error) {
		candidates, err = q.idleMembers(ctx)
		return err
	})
	if err != nil {
		return 0, failure(ctx, "list members of "+q.cfg.Group, err)
	}
	gone, err := q.removeAll(ctx, candidates)
	if len(gone) > 0 {
		q.log.InfoContext(ctx, "redisq: zombie members", slog.Int("count", len(gone)), slog.Bool("dry_run", q.cfg.ZombieDryRun),
			slog.Any("first", gone[:min(len(gone), zombiesLogged)]))
	}
	return len(gone), failure(ctx, "remove members of "+q.cfg.Group, err)
}

// idleMembers are those worth a closer look; the script decides.
func (q *Queue) idleMembers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
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

func (q *Queue) removeAll(ctx context.Context, members []string) (gone []string, err error) {
	for _, member := range members {
		removed, err := q.removeOne(ctx, member)
		if err != nil {
			return gone, err // the next round goes on
		}
		if removed {
			gone = append(gone, member)
		}
	}
	return gone, nil
}

func (q *Queue) removeOne(ctx context.Context, member string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key := q.aliveKey(member)
	if q.cfg.ZombieDryRun {
		alive, err := q.client.Do(ctx, q.client.B().Exists().Key(key).Build()).AsInt64()
		return err == nil && alive == 0, err
	}
	removed, _, err := q.scripts.RemoveConsumer(ctx, stream.Loaded().ConsumerRemove, stream.Removal{
		Key: q.cfg.StreamKey, Group: q.cfg.Group, Name: member, Heartbeat: key, Heir: q.name,
		MinIdle: q.cfg.ZombieMinIdle, MaxPending: q.cfg.ZombieMaxPending,
	})
	if removed {
		q.metrics.zombies.WithLabelValues(q.cfg.StreamKey).Inc()
	}
	return removed, err
}

// Part makes a stream one of several that have their members in common.
type Part struct {
	// Member is the consumer's name.
	Member string
	// Beats is what heartbeat keys begin with: one key tells for all parts that a member lives. Not on a cluster, where each
	// part has heartbeats in the slot of its stream.
	Beats string
	// Codec reads and writes the entries; nil: as on the single stream.
	Codec Codec
}

// NewPart is New for one of several streams. Who owns such a stream and reads it is decided elsewhere; what this queue does
// for a row, it does for any entry, as on a stream of its own.
func NewPart(client rueidis.Client, cfg Config, part Part, log *slog.Logger, now func() time.Time, metrics *Metrics) *Queue {
	q := New(client, cfg, log, now, metrics)
	if q.name = part.Member; !isCluster(client) {
		q.beats = part.Beats
	}
	if part.Codec != nil {
		q.codec = part.Codec
	}
	return q
}

// KeepAlive makes sure that the member's heartbeat was written lately; to be called before it is given a delivery.
func (q *Queue) KeepAlive(ctx context.Context) error {
	return failure(ctx, "heartbeat", q.keepAlive(ctx))
}

// Leave ends the heartbeat, and takes the member out of the group if it has nothing pending. A Redis that does not answer
// is no error: it is logged, and the member is removed as a zombie.
func (q *Queue) Leave(ctx context.Context) { q.leave(ctx) }
