package mirror

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

const (
	contentType = "application/json"
	hashHeader  = "requestHash" // of the request with the idempotency key, which the envelope does not have
)

// copyOf is the copy of a task (contract §5), without its correlation id: the round in which it is published.
// Errors: those of package proto.
func copyOf(t taskstate.Task) (amqp.Publishing, error) {
	body, err := pb.Encode(ingestq.EnvelopeOf(t))
	if err != nil {
		return amqp.Publishing{}, fmt.Errorf("encode the copy of task %s: %w", t.ID, err)
	}
	m := amqp.Publishing{
		MessageId: t.ID, DeliveryMode: amqp.Persistent, ContentType: contentType, Body: body,
		Headers: amqp.Table{
			"taskId": t.ID, "idempotencyKey": t.IdempotencyKey, "workflowId": t.WorkflowID, "channel": t.Channel, "traceparent": t.TraceParent,
		},
	}
	if t.RequestHash != "" {
		m.Headers[hashHeader] = t.RequestHash
	}
	return m, nil
}

// again is a message that was taken, to be published at the tail. What would make the broker refuse it, send it elsewhere too or
// throw it away is left out: a foreign user, further routing keys and an expiry, and what the broker itself adds.
func again(d taken, mark string) amqp.Publishing {
	headers := amqp.Table{}
	for name, value := range d.Headers {
		switch name {
		case "x-delivery-count", "x-acquired-count", "CC", "BCC":
			continue
		}
		if one := (amqp.Table{name: value}); one.Validate() == nil {
			headers[name] = value
		}
	}
	return amqp.Publishing{
		Headers: headers, MessageId: d.MessageId, CorrelationId: mark, DeliveryMode: amqp.Persistent, ContentType: d.ContentType,
		ContentEncoding: d.ContentEncoding, Priority: d.Priority, ReplyTo: d.ReplyTo, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
}

// taken is a message that was taken.
type taken struct {
	amqp.Delivery
	envelope *pb.TaskEnvelope // nil: it is no copy of a task
	id       uuid.UUID        // the task's
}

// read reads a message. Its body says whose copy it is: that is what a task can be made of again.
func read(d amqp.Delivery) taken {
	e, err := pb.Decode(d.Body)
	if err != nil {
		return taken{Delivery: d}
	}
	id, ok := parseID(e.GetTaskId())
	if !ok {
		return taken{Delivery: d}
	}
	return taken{d, e, id}
}

// parseID reads a task's id; only its one form counts.
func parseID(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}

// madeAt is when a UUIDv7 was made, to the millisecond.
func madeAt(id uuid.UUID) time.Time {
	var b [8]byte
	copy(b[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:]))) //nolint:gosec // 48 bits
}

// firstID is before every UUIDv7 of a time.
func firstID(at time.Time) uuid.UUID {
	var id uuid.UUID
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(max(0, at.UnixMilli()))) //nolint:gosec // not negative
	copy(id[:6], b[2:])
	return id
}
