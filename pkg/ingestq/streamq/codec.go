package streamq

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/streammq/stream"
	pb "github.com/millweir/millweir/proto"
)

// message is an envelope as streammq carries it. Versions of one document go to one partition; a task without a document
// has a key of its own.
func message(e *pb.TaskEnvelope) (streammq.Message, error) {
	payload, err := pb.Encode(e)
	if err != nil {
		return streammq.Message{}, err
	}
	key := e.GetDocumentId()
	if key == "" {
		key = e.GetTaskId()
	}
	m := streammq.Message{Key: key, Payload: payload}
	// The envelope has it too; consumers of the topic that know no envelope link by the header. What nobody records costs none.
	if parent := e.GetContext().GetTraceparent(); strings.HasSuffix(parent, sampled) {
		m.Headers = map[string]string{headerTrace: parent}
	}
	return m, nil
}

const (
	headerTrace = "traceparent" // W3C trace context
	sampled     = "-01"         // its flags, when somebody records it
)

// codec writes and reads the entries of one partition past streammq.
type codec struct {
	partition int
	now       func() time.Time
}

// Encode implements redisq.Codec.
func (c codec) Encode(e *pb.TaskEnvelope) ([]pb.Field, error) {
	m, err := message(e)
	if err != nil {
		return nil, err
	}
	flat := streammq.EncodeEntry(Topic, c.partition, m, c.now())
	fields := make([]pb.Field, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		fields = append(fields, pb.Field{Name: flat[i], Value: flat[i+1]})
	}
	return fields, nil
}

// Glance implements redisq.Codec: a payload is read as a whole.
func (codec) Glance(stream.Fields) (string, bool) { return "", false }

// Decode implements redisq.Codec.
func (c codec) Decode(fields map[string]string) (*pb.TaskEnvelope, error) {
	m, err := streammq.DecodeEntry(fields)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pb.ErrMalformed, err)
	}
	return pb.Decode(m.Payload)
}

// single is the place of the stream of INGEST_STREAM_PARTITIONS=1 among the parts.
const single = -1

// idOf is a delivery's id: at most 19 characters and the digits of a sequence number, so that it fits into the row's column.
func idOf(partition int, entry string) string {
	if partition == single {
		return entry
	}
	return strconv.Itoa(partition) + ":" + entry
}

// splitID is the opposite of idOf. What has no partition in front is an entry of the single stream, or no id at all, which
// redisq finds out.
func splitID(id string) (partition int, entry string, ok bool) {
	left, right, found := strings.Cut(id, ":")
	if !found {
		return single, id, true
	}
	n, err := strconv.Atoi(left)
	if err != nil || n < 0 || n >= streammq.MaxPartitions || strconv.Itoa(n) != left {
		return 0, "", false
	}
	return n, right, true
}

// byPart groups ids by their part, in their order.
func byPart(ids []string) map[int][]string {
	groups := map[int][]string{}
	for _, id := range ids {
		if partition, entry, ok := splitID(id); ok {
			groups[partition] = append(groups[partition], entry)
		}
	}
	return groups
}
