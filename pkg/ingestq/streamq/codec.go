package streamq

import (
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq"
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

// Decode implements redisq.Codec.
func (c codec) Decode(fields map[string]string) (*pb.TaskEnvelope, error) {
	m, err := streammq.DecodeEntry(fields)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pb.ErrMalformed, err)
	}
	return pb.Decode(m.Payload)
}
