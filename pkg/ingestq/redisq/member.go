package redisq

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	leaveTimeout  = 3 * time.Second
	zombiesLogged = 10 // names in one log line
)

// member is a name in the group, which lives as long as its heartbeat does.
type member struct {
	*group
	name  string
	beats string // what heartbeat keys begin with

	beatMu sync.Mutex
	beaten time.Time // of the last heartbeat written
}

// Name implements ingestq.Consumer.
func (m *member) Name() string { return m.name }

// KeepAlive makes sure that the heartbeat was written lately: no member holds a delivery without one.
func (m *member) KeepAlive(ctx context.Context) error {
	m.beatMu.Lock()
	age := m.now().Sub(m.beaten)
	fresh := !m.beaten.IsZero() && age >= 0 && age < m.cfg.HeartbeatTTL/ingestq.BeatsPerTTL
	m.beatMu.Unlock()
	if fresh {
		return nil
	}
	return failure(ctx, "heartbeat", m.beat(ctx))
}

func (m *member) beat(ctx context.Context) error {
	now := m.now()
	key := m.aliveKey(m.name)
	command := m.client.B().Set().Key(key).Value("1").PxMilliseconds(m.cfg.HeartbeatTTL.Milliseconds()).Build()
	if err := do(ctx, m.client, command.ToRetryable()).Error(); err != nil {
		return err
	}
	m.beatMu.Lock()
	defer m.beatMu.Unlock()
	m.beaten = now
	return nil
}

// Ping implements ingestq.Consumer: it writes the heartbeat, since a full or read-only Redis answers a PING too.
func (m *member) Ping(ctx context.Context) error {
	return failure(ctx, "ping", m.beat(ctx))
}

// aliveKey is a string "1" that exists while the member lives; TTL Config.HeartbeatTTL, written anew every third of it.
// It begins with the stream's key, or what several streams have in common, so that it is found beside it and two groups or
// streams never share one. On a cluster it lies in the stream's slot, for scripts touch both: {stream}:alive:group:member.
func (m *member) aliveKey(consumer string) string {
	return m.beats + ":alive:" + m.cfg.Group + ":" + consumer
}

// Run implements ingestq.Consumer. It is to end after the last Read and Ack.
func (m *member) Run(ctx context.Context) error {
	ingestq.Member{
		Queue: "redisq", HeartbeatTTL: m.cfg.HeartbeatTTL, ZombieInterval: m.cfg.ZombieInterval, Log: m.log,
		Beat:          func(ctx context.Context) error { return failure(ctx, "heartbeat", m.beat(ctx)) },
		RemoveZombies: func(ctx context.Context) error { _, err := m.RemoveZombies(ctx); return err },
	}.Live(ctx)
	m.Leave(context.WithoutCancel(ctx))
	return nil
}

// Leave ends the heartbeat, and the membership if nothing is pending. A Redis that does not answer is no error:
// it is logged, the key ends by itself and the member is removed as a zombie.
func (m *member) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	crash.Point("worker.before_leave")
	left, _, err := m.scripts.RemoveConsumer(ctx, stream.Loaded().ConsumerRemove, stream.Removal{
		Key: m.cfg.StreamKey, Group: m.cfg.Group, Name: m.name, Heartbeat: m.aliveKey(m.name), Leaves: true,
	})
	if err != nil {
		m.log.WarnContext(ctx, "redisq: did not leave the group", slog.Any("error", failure(ctx, "leave", err)))
		return
	}
	m.log.InfoContext(ctx, "redisq: stopped", slog.String("consumer", m.name), slog.Bool("left_group", left))
}

// RemoveZombies removes members without a heartbeat that have been idle for ZombieMinIdle and hold at most
// ZombieMaxPending entries, which become this member's with their idle times; it returns how many went.
// With ZombieDryRun it only counts and logs them.
func (m *member) RemoveZombies(ctx context.Context) (int, error) {
	candidates, err := ask(ctx, m.group, "list members of "+m.cfg.Group, m.idleMembers)
	if err != nil {
		return 0, err
	}
	gone := candidates[:0]
	for _, name := range candidates {
		var removed bool
		if removed, err = m.removeOne(ctx, name); err != nil {
			break // the next round goes on
		}
		if removed {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		m.log.InfoContext(ctx, "redisq: zombie members", slog.Int("count", len(gone)), slog.Bool("dry_run", m.cfg.ZombieDryRun),
			slog.Any("first", gone[:min(len(gone), zombiesLogged)]))
	}
	return len(gone), failure(ctx, "remove members of "+m.cfg.Group, err)
}

// idleMembers are those worth a closer look; the script decides.
func (m *member) idleMembers(ctx context.Context) ([]string, error) {
	consumers, err := stream.Consumers(ctx, m.client, m.cfg.StreamKey, m.cfg.Group)
	if err != nil {
		return nil, err
	}
	var idle []string
	for _, c := range consumers {
		if c.Name != m.name && c.Idle >= m.cfg.ZombieMinIdle && c.Pending <= int64(m.cfg.ZombieMaxPending) {
			idle = append(idle, c.Name)
		}
	}
	return idle, nil
}

func (m *member) removeOne(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key := m.aliveKey(name)
	if m.cfg.ZombieDryRun {
		alive, err := m.client.Do(ctx, m.client.B().Exists().Key(key).Build()).AsInt64()
		return err == nil && alive == 0, err
	}
	removed, _, err := m.scripts.RemoveConsumer(ctx, stream.Loaded().ConsumerRemove, stream.Removal{
		Key: m.cfg.StreamKey, Group: m.cfg.Group, Name: name, Heartbeat: key, Heir: m.name,
		MinIdle: m.cfg.ZombieMinIdle, MaxPending: m.cfg.ZombieMaxPending,
	})
	if removed {
		m.metrics.zombies.WithLabelValues(m.cfg.StreamKey).Inc()
	}
	return removed, err
}
