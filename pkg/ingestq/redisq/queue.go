package redisq

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Queue is one member of the group. It is safe for concurrent use.
type Queue struct {
	*Publisher
	name  string
	beats string // what heartbeat keys begin with

	seen   atomic.Bool  // the group was there: making it is no loss before
	heals  atomic.Int64 // how often heal made the group
	healMu sync.Mutex
	healed time.Time
	pause  time.Duration
	logged time.Time
	quiet  int // losses since the last line

	beatMu sync.Mutex
	beaten time.Time // of the last heartbeat written

	pauses stream.Pauses // after reads that failed

	readMu sync.Mutex
	last   string    // id of the last entry that a read returned
	missed time.Time // of the last read without an answer; zero: nothing that it was given is missing any more
}

var _ ingestq.PendingQueue = (*Queue)(nil)

// New makes a member with a name that no other start of any process has; arguments as those of NewPublisher.
// It is seen by the group from its first Read on; Run keeps it alive.
func New(client rueidis.Client, cfg Config, log *slog.Logger, now func() time.Time, metrics *Metrics) *Queue {
	q := &Queue{Publisher: NewPublisher(client, cfg, log, now, metrics), name: ingestq.MemberName(), beats: cfg.StreamKey}
	if isCluster(client) {
		q.beats = tag(cfg.StreamKey)
	}
	return q
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

const (
	healFirstPause = 100 * time.Millisecond // between the first and the second making of a group, doubled from then on
	healMaxPause   = 5 * time.Second
	healCalm       = time.Minute      // without a loss the pause starts anew
	healLogEvery   = 10 * time.Second // one line for all losses within
)

// healing runs do, and once more after the stream or group that it missed was made.
func (q *Queue) healing(ctx context.Context, do func() error) error {
	before := q.heals.Load()
	err := do()
	if stream.IsMissing(err) {
		if err = q.heal(ctx, before, err); err == nil {
			err = do()
		}
	}
	if err == nil {
		q.seen.Store(true)
	}
	return err
}

// ask is healing for a question within callTimeout.
func ask[T any](ctx context.Context, q *Queue, doing string, question func(ctx context.Context) (T, error)) (T, error) {
	var answer T
	err := q.healing(ctx, func() (err error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		answer, err = question(call)
		return err
	})
	return answer, failure(ctx, doing, err)
}

// heal makes the group at 0, with its stream: one made at $ would never be given what was added before it. It does so at most so
// often that somebody who deletes them in a loop costs neither CPU nor log (FastStream #2611, #2945, #3106).
// Its error is ingestq.ErrUnavailable within the pause, but not for a call that may have missed the group before it was made: before
// is q.heals when the call began.
func (q *Queue) heal(ctx context.Context, before int64, cause error) error {
	q.healMu.Lock()
	defer q.healMu.Unlock()
	if q.heals.Load() != before {
		return nil
	}
	now := q.now()
	since := now.Sub(q.healed)
	if !q.healed.IsZero() && since >= 0 && since < q.pause {
		return fmt.Errorf("%w: the group was made %s ago and is missing again", ingestq.ErrUnavailable, since.Round(time.Millisecond))
	}
	first := !q.seen.Load() // before the group is there for other calls to see
	made, err := q.createGroup(ctx)
	if err != nil {
		return fmt.Errorf("make group %s on stream %s: %w", q.cfg.Group, q.cfg.StreamKey, err)
	}
	if !made {
		return nil // another member was faster
	}
	q.heals.Add(1)
	if first {
		q.log.InfoContext(ctx, "redisq: group made", slog.String("stream", q.cfg.StreamKey), slog.String("group", q.cfg.Group))
		return nil
	}
	q.pause = min(max(healFirstPause, 2*q.pause), healMaxPause)
	if since > healCalm {
		q.pause = healFirstPause
	}
	q.healed = now
	q.metrics.healed.WithLabelValues(q.cfg.StreamKey).Inc()
	q.quiet++
	if now.Sub(q.logged) >= healLogEvery {
		q.log.WarnContext(ctx, "redisq: stream or group was lost and is made again; its tasks come back from the table",
			slog.String("stream", q.cfg.StreamKey), slog.String("group", q.cfg.Group),
			slog.Int("times", q.quiet), slog.Any("error", cause))
		q.logged, q.quiet = now, 0
	}
	return nil
}

// createGroup returns false when the group was there.
func (q *Queue) createGroup(ctx context.Context) (bool, error) {
	command := q.client.B().XgroupCreate().Key(q.cfg.StreamKey).Group(q.cfg.Group).Id("0").Mkstream().Build()
	err := do(ctx, q.client, command).Error()
	if stream.IsError(err, "BUSYGROUP") {
		return false, nil
	}
	return err == nil, err
}
