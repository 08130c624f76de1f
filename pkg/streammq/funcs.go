package streammq

import (
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/admin"
	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/produce"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// NewDefaultConfig is the configuration of contract §6 for one Redis.
func NewDefaultConfig() Config { return model.NewDefaultConfig() }

// Success is the result of a message that is done.
func Success() Result { return model.Success() }

// Replied is Success with a reply, at most Config.MaxPayload bytes; nobody need have asked for one.
func Replied(payload []byte) Result { return model.Replied(payload) }

// Retry asks for another attempt after the policy's delay.
func Retry(err error) Result { return model.Retry(err) }

// RetryAfter asks for another attempt after a delay of the handler's own; below zero is the policy's.
func RetryAfter(delay time.Duration, err error) Result { return model.RetryAfter(delay, err) }

// Fail ends the message: no attempt can cure it.
func Fail(err error) Result { return model.Fail(err) }

// DeadLetter puts the message aside for a person.
func DeadLetter(err error) Result { return Result{Outcome: OutcomeDeadLetter, Err: err} }

// Settled says that the handler has settled the delivery by Ack, Nack or Reject, or will. Until then the delivery keeps
// its place among the running handlers (SubscriberConfig.MaxInFlight), and at most a Batch of them waits in a partition;
// the partition goes on with its next messages, of the same key too. When the subscriber stops, gives the partition up, or
// begins again after a failure, what is not settled is delivered again.
func Settled() Result { return Result{Outcome: OutcomeSettled} }

// FromError is Success for nil, Fail for what is ErrPermanent, and Retry for every other error.
func FromError(err error) Result {
	switch {
	case err == nil:
		return Success()
	case errors.Is(err, ErrPermanent):
		return Fail(err)
	default:
		return Retry(err)
	}
}

// StreamKey is the key of a partition's stream; the same in both layouts.
func StreamKey(topic string, partition int) string { return core.Source{Topic: topic, Part: partition}.Stream() }

// EncodeEntry is a message as a partition's stream holds it (contract §6): names and values in turn, as XADD
// takes them, with the payload in it whatever its size.
// It is for who adds to a partition by a script of their own; everybody else has a Producer.
func EncodeEntry(topic string, partition int, m Message, now time.Time) []string {
	e := wire.Entry{
		Payload: m.Payload, Timestamp: now, MaxRetries: m.MaxAttempts, Topic: topic, Partition: partition, Key: m.Key,
		Headers: model.WithUUID(m.Headers, now),
	}
	return e.Fields()
}

// DecodeEntry reads the names and values of an entry. Its error wraps ErrMalformed, also for an entry whose payload lies
// beside the stream.
func DecodeEntry(fields map[string]string) (Message, error) {
	if ref := fields[wire.FieldPayloadRef]; ref != "" {
		return Message{}, fmt.Errorf("%w: the payload %q lies beside the stream", ErrMalformed, ref)
	}
	e, err := wire.DecodeEntry(wire.Flat(fields))
	if err != nil {
		return Message{}, err
	}
	e.Unwrap()
	return Message{Key: e.Key, Payload: e.Payload, Headers: e.Headers, MaxAttempts: e.MaxRetries}, nil
}

// NewHash is the default partitioner: FNV-1a of the key modulo the partitions; messages without a key are
// spread in turn.
func NewHash() Partitioner { return produce.NewHash() }

// NewConsistentHash moves only 1/n of the keys when a topic grows from n-1 to n partitions (jump consistent
// hash, Lamping and Veach 2014); messages without a key are spread in turn.
func NewConsistentHash() Partitioner { return produce.NewConsistentHash() }

// NewJavaHash is String.hashCode modulo the partitions, as the Java original computes it; messages without a
// key are spread in turn.
func NewJavaHash() Partitioner { return produce.NewJavaHash() }

// NewRoundRobin spreads messages in turn, whatever their key: no order is kept.
func NewRoundRobin() Partitioner { return produce.NewRoundRobin() }

// NewExplicit refuses messages without a number in HeaderForcePartition.
func NewExplicit() Partitioner { return produce.NewExplicit() }

// NewDefaultRequesterConfig has the defaults.
func NewDefaultRequesterConfig(name string) RequesterConfig {
	return produce.NewDefaultRequesterConfig(name)
}

// NewDefaultConsumerConfig has the defaults of contract §6; a member that does not poll keeps its partitions.
func NewDefaultConsumerConfig(topic, group string) ConsumerConfig {
	return consume.NewDefaultConsumerConfig(topic, group)
}

// NewDefaultSubscriberConfig has the defaults of contract §6 for a topic.
func NewDefaultSubscriberConfig(topic, group string, handler Handler) SubscriberConfig {
	return consume.NewDefaultSubscriberConfig(topic, group, handler)
}

// NewDefaultStreamConfig has the defaults for a single stream: retries in place, both roles, nothing trimmed.
func NewDefaultStreamConfig(key, group, consumer string, handler Handler) SubscriberConfig {
	return consume.NewDefaultStreamConfig(key, group, consumer, handler)
}

// NewDefaultLetterConfig has the defaults of a single stream for a group that consumes dead letters.
func NewDefaultLetterConfig(group, consumer string) SubscriberConfig {
	return consume.NewDefaultStreamConfig("", group, consumer, nil)
}

// PositionStart is before all that the streams still hold.
func PositionStart() Position { return admin.PositionStart() }

// PositionEnd is after all that was published until now.
func PositionEnd() Position { return admin.PositionEnd() }

// PositionTime is before the first entry that was added at a time or later, by Redis' clock.
func PositionTime(t time.Time) Position { return admin.PositionTime(t) }

// PositionAfter is after an entry's id, "ms-seq" or "ms"; in every partition, so name one partition with it
// if the id came from there. Error: ErrEntryID.
func PositionAfter(id string) (Position, error) { return admin.PositionAfter(id) }
