package redisq

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const maxHostInName = 64 // bytes

// Queue is one member of the group. It is safe for concurrent use.
type Queue struct {
	*Publisher
	name   string
	beats  string // what heartbeat keys begin with
	healer healer
	pauses stream.Pauses // after reads that failed

	beatMu sync.Mutex
	beaten time.Time // of the last heartbeat written

	readMu sync.Mutex
	last   string    // id of the last entry that a read answered
	missed time.Time // of the last read without an answer; zero: nothing that it was given is missing any more
}

var _ ingestq.PendingQueue = (*Queue)(nil)

// New makes a member with a name that no other start of any process has; arguments as those of NewPublisher.
// It is seen by the group from its first Read on; Run keeps it alive.
func New(client rueidis.Client, cfg Config, log *slog.Logger, now func() time.Time, metrics *Metrics) *Queue {
	q := &Queue{Publisher: NewPublisher(client, cfg, log, now, metrics), name: memberName(), beats: cfg.StreamKey}
	if isCluster(client) {
		q.beats = tag(cfg.StreamKey)
	}
	return q
}

// memberName is host-pid-random (oban#862: a name that comes back inherits what it never read).
func memberName() string { return HostPID() + "-" + strings.ToLower(rand.Text()[:10]) }

// HostPID names this process; what names of members cannot hold becomes a dash.
func HostPID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, host)
	return fmt.Sprintf("%s-%d", host[:min(len(host), maxHostInName)], os.Getpid())
}

// Name implements ingestq.Consumer.
func (q *Queue) Name() string { return q.name }

// keepAlive makes sure that the heartbeat key was written lately: no member holds a delivery without one.
func (q *Queue) keepAlive(ctx context.Context) error {
	q.beatMu.Lock()
	age := q.now().Sub(q.beaten)
	fresh := !q.beaten.IsZero() && age >= 0 && age < q.cfg.HeartbeatTTL/ingestq.BeatsPerTTL
	q.beatMu.Unlock()
	if fresh {
		return nil
	}
	return q.beat(ctx)
}

func (q *Queue) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now := q.now()
	key := q.aliveKey(q.name)
	command := q.client.B().Set().Key(key).Value("1").PxMilliseconds(q.cfg.HeartbeatTTL.Milliseconds()).Build()
	if err := q.client.Do(ctx, command.ToRetryable()).Error(); err != nil {
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

// healer makes the stream and its group when they are missing, at most so often that somebody who deletes them
// in a loop costs neither CPU nor log (FastStream #2611, #2945, #3106).
type healer struct {
	seen atomic.Bool // the group was there: making it is no loss before

	mu     sync.Mutex
	last   time.Time
	pause  time.Duration
	logged time.Time
	quiet  int // losses since the last line
}
