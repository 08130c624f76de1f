// Package model is what users of the queue see of a message and its settings: messages and deliveries, results, policies, events,
// errors, states and the configuration, with their limits.
package model

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"
	"unicode/utf8"
)

// Headers that the queue itself reads or writes.
const (
	// HeaderUUID is the message's business id. It is given by the caller or made by Publish, and never changes.
	HeaderUUID = "x-message-uuid"
	// HeaderUser names the user whose message it is. Where status is kept, it is kept too, for MQ.OwnStatus: by our producers
	// when it is published, by our consumers of another publisher's entries with the first delivery.
	HeaderUser = "x-user-id"
	// HeaderForcePartition sends a message to the partition with this number, modulo the partitions, whatever the
	// partitioner says. What is no whole number counts for nothing.
	HeaderForcePartition = "x-force-partition-id"
	// HeaderOriginalID is the id of the first entry of a message that was added again by a retry or a replay.
	HeaderOriginalID = "x-original-message-id"
	// HeaderPartition is the partition of that first entry.
	HeaderPartition = "partitionId"
	// HeaderReplyTo names the Requester that waits for a reply; HeaderCorrelationID is what the reply must carry, and
	// HeaderReplyTimeout how long it is waited for, in ms from the message's first entry.
	HeaderReplyTo       = "x-reply-to"
	HeaderCorrelationID = "x-correlation-id"
	HeaderReplyTimeout  = "x-reply-timeout"
	// HeaderRetryGroup names the group that an entry added again is for: the other groups have seen the message. Consumers
	// of the Java original do not look at it.
	HeaderRetryGroup = "x-retry-group"
	// HeaderRetryCount is how often this queue has put the message off; what the entry's retryCount has above it the Java
	// original did.
	HeaderRetryCount = "x-retry-count"
	// HeaderPayloadRef names a STRING of JSON that holds the payload of a large message of the Java original, with
	// HeaderPayloadStorage "hash"; HeaderPayloadSize is its length as JSON.
	HeaderPayloadRef     = "x-payload-hash-ref"
	HeaderPayloadStorage = "x-payload-storage-type"
	HeaderPayloadSize    = "x-payload-original-size"
)

// HeaderContentType names how a payload is encoded; the typed functions set it.
const HeaderContentType = "content-type"

// Limits of a message. The payload's is Config.MaxPayload.
const (
	MaxKey     = 1 << 10  // bytes of a message's key
	MaxHeaders = 32 << 10 // bytes of all names and values of a message's headers

	MaxAttempts = 10_000 // runs of a message
)

// Message is what a producer gives.
type Message struct {
	// Key decides the partition; messages with the same key keep their order. Empty: any partition.
	Key string
	// Payload is carried as it is; at most Config.MaxPayload bytes.
	Payload []byte
	// Headers are carried beside it; the names above have a meaning.
	Headers map[string]string
	// MaxAttempts is how often a group may run the message before it is a dead letter, unless the group's policy
	// says it; 0: DefaultMaxAttempts.
	MaxAttempts int
}

func Validate(m Message, maxPayload int) error {
	if len(m.Payload) > maxPayload {
		return fmt.Errorf("payload of %d bytes: %w: at most %d", len(m.Payload), ErrTooLarge, maxPayload)
	}
	if len(m.Key) > MaxKey {
		return fmt.Errorf("key of %d bytes: %w: at most %d", len(m.Key), ErrTooLarge, MaxKey)
	}
	if !utf8.ValidString(m.Key) {
		return fmt.Errorf("key: %w: not valid UTF-8", ErrHeader)
	}
	if m.MaxAttempts < 0 || m.MaxAttempts > MaxAttempts {
		return fmt.Errorf("MaxAttempts %d: %w: 0 to %d", m.MaxAttempts, ErrConfig, MaxAttempts)
	}
	size := 0
	for name, value := range m.Headers {
		size += len(name) + len(value)
		if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
			return fmt.Errorf("header %q: %w: a name and valid UTF-8 are needed", name, ErrHeader)
		}
	}
	if size > MaxHeaders {
		return fmt.Errorf("headers of %d bytes: %w: at most %d", size, ErrTooLarge, MaxHeaders)
	}
	return nil
}

// Receipt tells where a message went.
type Receipt struct {
	UUID      string // the business id, also in HeaderUUID
	Partition int
	ID        string // of the stream's entry
}

// Outcome is what becomes of a delivery.
type Outcome string

// The outcomes of a handler.
const (
	OutcomeSuccess    Outcome = "success"     // done: acknowledged
	OutcomeRetry      Outcome = "retry"       // again later, by the RetryPolicy; after the last attempt as OutcomeFail
	OutcomeFail       Outcome = "fail"        // never again: the DeadLetterPolicy decides
	OutcomeDeadLetter Outcome = "dead_letter" // to the dead letters, whatever the policy
	OutcomeSettled    Outcome = "settled"     // the handler has settled it, or will: see Delivery.Ack
)

// Result is a handler's answer.
type Result struct {
	Outcome Outcome
	Err     error
	// Delay of an OutcomeRetry, if it is not negative; otherwise the policy's.
	Delay time.Duration
	// Reply of an OutcomeSuccess to who asked for one; it is sent before the message is acknowledged.
	Reply []byte
	// ReplyHeaders are carried beside it; in FastStream's binary envelope only those that a message may have, see MaxHeaders.
	ReplyHeaders map[string]string
}

// Success is the result of a message that is done.
func Success() Result { return Result{Outcome: OutcomeSuccess} }

// Replied is Success with a reply, at most Config.MaxPayload bytes; nobody need have asked for one.
func Replied(payload []byte) Result {
	if payload == nil {
		payload = []byte{}
	}
	return Result{Outcome: OutcomeSuccess, Reply: payload}
}

// Retry asks for another attempt after the policy's delay.
func Retry(err error) Result { return Result{Outcome: OutcomeRetry, Err: err, Delay: -1} }

// RetryAfter asks for another attempt after a delay of the handler's own; below zero is the policy's.
func RetryAfter(delay time.Duration, err error) Result {
	return Result{Outcome: OutcomeRetry, Err: err, Delay: delay}
}

// Fail ends the message: no attempt can cure it.
func Fail(err error) Result { return Result{Outcome: OutcomeFail, Err: err} }

// Reason is never nil for what is no success.
func Reason(r Result) error {
	if r.Err == nil {
		return errNoReason
	}
	return r.Err
}

var ErrNacked = errors.New("not acknowledged by its handler")

// settler settles deliveries for who handed them out.
type settler interface {
	Settle(ctx context.Context, d *Delivery, result Result) error
}

// Delivery is one message in the hands of a handler.
type Delivery struct {
	Topic     string
	Partition int
	Group     string
	ID        string // of the stream's entry
	UUID      string // the business id
	Key       string
	Payload   []byte
	Headers   map[string]string
	// Attempt counts this group's runs of the message by its policy, from 1.
	Attempt int
	// Deliveries is how often Redis has handed out this entry: more than Attempt after crashes and takeovers.
	Deliveries int64
	// MaxAttempts is what the producer said.
	MaxAttempts int
	// OriginalID is the id of the message's first entry; ID itself unless it was added again.
	OriginalID string
	// Published is the time of the message's first entry, by the producer's clock.
	Published time.Time
	// Epoch is the epoch of the lease under which the entry was read; empty on a single stream.
	Epoch string
	// Err says why the entry cannot be read. Only a Consumer hands such an entry out; a Subscriber makes a dead letter of it.
	Err error
	// Fields are the entry's names and values in turn, as they came; from a Consumer only.
	Fields []string

	settler settler // nil: nobody handed it out
}

// Ack settles the delivery as done. A handler that uses Ack, Nack or Reject may call it from any goroutine, before or
// after it has returned; it returns Settled then. The first call counts, its write is fenced as all writes are, and is
// made at once instead of with the rest of the batch. What a Consumer's Poll returned is settled so too.
// Errors: ErrSettled after an earlier call or another result of the handler; ErrNotHeld when the message is another
// member's by now, or is to be delivered again; ctx's, ErrUnavailable and ErrFull, after which the call may be repeated.
func (d *Delivery) Ack(ctx context.Context) error { return Settle(d, ctx, Success()) }

// Reply is Ack with a reply to who asked for one; it is sent first. Errors: as of Ack.
func (d *Delivery) Reply(ctx context.Context, payload []byte) error {
	return Settle(d, ctx, Replied(payload))
}

// Nack puts the message off, as RetryAfter does: below zero the delay is the policy's, and after the last attempt the
// DeadLetterPolicy decides. Errors: as of Ack.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration) error {
	return Settle(d, ctx, RetryAfter(delay, ErrNacked))
}

// Reject ends the message, as Fail does: no attempt can cure it. Errors: as of Ack.
func (d *Delivery) Reject(ctx context.Context, cause error) error { return Settle(d, ctx, Fail(cause)) }

func Settle(d *Delivery, ctx context.Context, result Result) error {
	if d.settler == nil {
		return fmt.Errorf("settle message %s of %s: %w: no subscriber or consumer handed it out", d.ID, d.Topic, ErrNotHeld)
	}
	return d.settler.Settle(ctx, d, result)
}

// HandOut names who settles a delivery.
func HandOut(d *Delivery, by settler) { d.settler = by }

// HandedOutBy is who settles it; nil: nobody.
func HandedOutBy(d *Delivery) settler { return d.settler }

// WithUUID is a copy of headers that names a message: by its own business id, or by a new one.
func WithUUID(headers map[string]string, now time.Time) map[string]string {
	named := make(map[string]string, len(headers)+1)
	maps.Copy(named, headers)
	if named[HeaderUUID] == "" {
		named[HeaderUUID] = NewUUID(now)
	}
	return named
}

// NewUUID makes a UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits.
// The random source is not for secrets: an id names a message, it does not protect it.
func NewUUID(now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16|rand.Uint64()&0x0fff|0x7000) //nolint:gosec // after 1970
	binary.BigEndian.PutUint64(b[8:], rand.Uint64()&0x3fffffffffffffff|0x8000000000000000)
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
