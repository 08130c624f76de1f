package redisq

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Queue is one member of the group. It is safe for concurrent use.
type Queue struct {
	*Publisher
	name  string
	beats string // what heartbeat keys begin with

	seen   atomic.Bool // the group was there: making it is no loss before
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
