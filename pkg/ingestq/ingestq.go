// Package ingestq is the port to the queue that carries deliveries (contract §5).
//
// A delivery only says "look at this task" (design D1): it may come twice, late or never, and carries no authority.
// The package holds no state machine; redisq implements the port on Redis Streams.
package ingestq

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/millweir/millweir/proto"
)

// ErrNoWatermark says that what the queue answers allows no judgement about lost deliveries (design D5).
var ErrNoWatermark = errors.New("the queue's horizon is not known")

// ErrFull says that a stream holds as many unfinished deliveries as it may. Those that were not added have their promise in the row,
// and the sweep adds them when there is room (design D5).
var ErrFull = errors.New("the stream is at its bound")

// ErrUnavailable says that the queue does not answer, or that its stream or group is being made again.
var ErrUnavailable = errors.New("queue unavailable")

// Delivery is one message that names a task.
type Delivery struct {
	ID     string            // the queue's own id, at most 31 of the characters 0123456789-:k./, which is what tasks keep
	TaskID string            // empty when the message cannot be decoded
	Body   Body              // nil when TaskID is empty
	Raw    map[string]string // the fields as they came, when they cannot be decoded
	Err    error             // why they cannot
}

// Body is what a message carries besides its task. It is decoded when somebody asks: most rows need no more than the task.
type Body interface {
	// Envelope returns all of the message; the same each time.
	Envelope() *pb.TaskEnvelope
}

// Decoded is a delivery whose message was decoded as a whole.
func Decoded(id string, e *pb.TaskEnvelope) Delivery {
	return Delivery{ID: id, TaskID: e.GetTaskId(), Body: whole{e}}
}

// whole is the Body that is there.
type whole struct{ e *pb.TaskEnvelope }

func (w whole) Envelope() *pb.TaskEnvelope { return w.e }

// Envelope returns all of the message; nil when it cannot be decoded.
func (d Delivery) Envelope() *pb.TaskEnvelope {
	if d.Body == nil {
		return nil
	}
	return d.Body.Envelope()
}

// Pending is a delivery that was read and not acknowledged.
type Pending struct {
	Delivery
	Consumer   string
	Alive      bool // the consumer's heartbeat key exists
	Idle       time.Duration
	Deliveries int64
	Gone       bool // the entry's data was deleted or trimmed while pending
}

// Copy asks for a delivery to be replaced by a new one.
type Copy struct {
	ID       string           // the delivery to acknowledge; the copy is made only if that acknowledged it
	Envelope *pb.TaskEnvelope // the new delivery, out of the row
}

// DeadLetter is an entry of the dead letter queue (contract §5).
type DeadLetter struct {
	TaskID         string
	Fence          int64
	SourceRecordID string // the delivery that brought the last claim; may be empty
	LastError      string
	AttemptCount   int
	FailedAt       time.Time
}

// UnsentDeadLetter is a dead letter that waits in the outbox of the other transport (design D11).
type UnsentDeadLetter struct {
	Seq    int64 // of the event
	TaskID string
	Fence  int64
}

// Watermark tells up to where the queue has been read (design D5).
type Watermark struct {
	// At is the time part of the first entry that no consumer of the group was given, by the queue's clock;
	// zero when there is none.
	At time.Time
	// Now is the queue's clock when it was asked.
	Now time.Time
}

// Stats are the queue's own counts.
type Stats struct {
	Length  int64
	Pending int64
	Lag     int64 // entries not yet given to the group; -1: not known
}

// Sum adds up the counts of several streams. One that holds entries and cannot tell its lag makes the sum's unknown; one without
// entries has none.
func Sum(streams ...Stats) Stats {
	sum, known, unknown := Stats{}, false, false
	for _, s := range streams {
		sum.Length += s.Length
		sum.Pending += s.Pending
		switch {
		case s.Lag >= 0:
			sum.Lag, known = sum.Lag+s.Lag, true
		case s.Length > 0: // the group has yet to be made, or the server cannot tell
			unknown = true
		}
	}
	if unknown || !known {
		sum.Lag = -1
	}
	return sum
}

// Smallest is the read watermark of several streams. The nodes of a cluster have clocks of their own: there the stream counts that
// waits longest by its own node's clock, told by the clock that is most behind.
func Smallest(watermarks []Watermark, cluster bool) Watermark {
	var out Watermark
	var longest time.Duration
	for _, h := range watermarks {
		if out.Now.IsZero() || h.Now.Before(out.Now) {
			out.Now = h.Now
		}
		if h.At.IsZero() {
			continue
		}
		longest = max(longest, h.Now.Sub(h.At))
		if out.At.IsZero() || h.At.Before(out.At) {
			out.At = h.At
		}
	}
	if cluster && !out.At.IsZero() {
		out.At = out.Now.Add(-longest)
	}
	return out
}

// Described is a queue that knows its names in traces.
type Described interface {
	// Destination returns messaging.system and messaging.destination.name of the OTel messaging conventions for tasks of a type.
	Destination(taskType string) (system, name string)
}

// Yielder is a Consumer whose members own parts of the queue.
type Yielder interface {
	// Yield leaves this member's parts to the others at once, until its next Read: for a process that works on what it has
	// and wants no more. It does not wait.
	Yield()
}

// Publisher adds deliveries. All methods are safe for concurrent use.
type Publisher interface {
	// Publish adds one delivery per envelope, pipelined, and returns their ids in order, "" for what was not added.
	// On an error some may have been added: the promise in the row covers the rest.
	// An envelope that cannot be encoded (an error of package proto) holds up none of the others. ErrFull: a stream has no room.
	Publish(ctx context.Context, envelopes []*pb.TaskEnvelope) (ids []string, err error)
}

// Place is where a queue has a delivery.
type Place struct {
	Stream     string
	Consumer   string        // who was given it and has not acknowledged it; empty: nobody
	Idle       time.Duration // since it was given
	Deliveries int64         // how often it was given
}

// Locator is a Publisher that can say where deliveries are.
type Locator interface {
	// Locate returns where the delivery of an id is; nil: it was acknowledged, or is none of this queue's.
	Locate(ctx context.Context, id string) (*Place, error)
}

// DeadLetterWriter writes dead letters. It is safe for concurrent use.
type DeadLetterWriter interface {
	// DeadLetters writes entries to the dead letter queue; an implementation without one does nothing.
	// An error says that some may not have been written.
	DeadLetters(ctx context.Context, deadLetters []DeadLetter) error
}

// Consumer is one member of the group: what every transport can do. All methods are safe for concurrent use.
// Every error wraps ErrUnavailable or ctx.Err(); implementations heal a missing stream or group themselves.
// Ids of another transport are unknown ids.
//
// A Consumer that is no PendingQueue commits offsets: every committed outcome and every result of a claim acknowledges its
// delivery, and a new delivery is an event of the row's own transaction.
type Consumer interface {
	// Name is the member's name, unique per process start.
	Name() string
	// Read waits up to block for new deliveries and returns at most n (n ≥ 1), possibly none.
	// After ctx ended it may still return, without an error, what it was given meanwhile.
	// A failing Read takes a little longer each time, so that a plain loop around it does not spin.
	Read(ctx context.Context, n int, block time.Duration) ([]Delivery, error)
	// Ack acknowledges deliveries; unknown ids are no error.
	Ack(ctx context.Context, ids ...string) error
	// Quarantine writes an undecodable delivery raw to the dead letter queue and acknowledges it, in one step.
	Quarantine(ctx context.Context, d Delivery) error
	// Watermark makes a missing stream or group first (at 0), then reads. ErrNoWatermark: no judgement now.
	Watermark(ctx context.Context) (Watermark, error)
	// Stats reads the counts.
	Stats(ctx context.Context) (Stats, error)
	// Run keeps the member's heartbeat and removes zombie members until ctx ends; it then ends the heartbeat, and leaves the
	// group if nothing is pending. So it is to end after the last Read, Ack and Requeue of the process.
	Run(ctx context.Context) error
	// Ping returns nil when the queue can be used (readiness).
	Ping(ctx context.Context) error
}

// PendingQueue is a Consumer whose group keeps each delivery that was read until it is acknowledged (Redis Streams): retries
// adopt it, a stop copies it, reconciling and trim put the rest in order (design D4). Whoever needs it asks once.
// An envelope that cannot be encoded (an error of package proto) holds up none of the others.
type PendingQueue interface {
	Consumer
	Publisher
	DeadLetterWriter

	// Adopt takes pending deliveries over from whoever has them, and tells which were found.
	Adopt(ctx context.Context, ids ...string) (found map[string]bool, err error)
	// Requeue copies and acknowledges in one step each, the copy only if the acknowledgement found the delivery.
	// It returns how many were copied.
	Requeue(ctx context.Context, copies []Copy) (n int, err error)
	// Pending lists deliveries idle for at least minIdle, in id order after the given id ("" from the start).
	// It sees old ones behind any number of young ones. A page may be shorter than n only at the end, or when n is over 1,000.
	Pending(ctx context.Context, minIdle time.Duration, after string, n int) ([]Pending, error)
	// Unpin acknowledges deliveries that are still idle for at least idle, in one step each (design D4, pins).
	Unpin(ctx context.Context, idle time.Duration, ids ...string) error
	// Trim removes what every group has finished: below the oldest entry that any group still needs.
	Trim(ctx context.Context) (removed int64, err error)
}

// Failure says what was being done, and wraps the caller's own ctx error if there is one, else ErrUnavailable.
// It is nil when err is.
func Failure(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%s: %w", doing, err)
	default:
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
}
