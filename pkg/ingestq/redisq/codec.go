package redisq

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/rueidis"

	pb "github.com/millweir/millweir/proto"
)

// Codec is how the fields of an entry carry an envelope.
type Codec interface {
	// Encode returns the fields of a new entry; errors are those of package proto.
	Encode(e *pb.TaskEnvelope) ([]pb.Field, error)
	// Decode reads what Encode, or another producer, has written. Its error wraps proto.ErrMalformed or another of that package.
	Decode(fields map[string]string) (*pb.TaskEnvelope, error)
}

// plain is the codec of the single stream: the envelope's members are the entry's fields (contract §5).
type plain struct{}

func (plain) Encode(e *pb.TaskEnvelope) ([]pb.Field, error) { return pb.EncodeFields(e) }

func (plain) Decode(fields map[string]string) (*pb.TaskEnvelope, error) {
	return pb.DecodeFields(fields)
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
