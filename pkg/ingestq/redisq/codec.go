package redisq

import (
	"fmt"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
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

// decode keeps the fields as they came when they are no envelope.
func decode(codec Codec, e rueidis.XRangeEntry) ingestq.Delivery {
	envelope, err := codec.Decode(e.FieldValues)
	if err != nil {
		return ingestq.Delivery{ID: e.ID, Raw: e.FieldValues, Err: fmt.Errorf("decode delivery %s: %w", e.ID, err)}
	}
	return ingestq.Delivery{ID: e.ID, Envelope: envelope}
}
