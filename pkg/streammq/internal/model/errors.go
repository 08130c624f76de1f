package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Errors of this package. Each is wrapped with what was given and with the limit that it passes.
var (
	// ErrConfig is wrapped when a setting is out of its range; the text names the setting and the range.
	ErrConfig = errors.New("bad configuration")
	// ErrTopicName is wrapped when a topic's name is empty, too long or holds a character that keys cannot hold.
	ErrTopicName = errors.New("bad topic name")
	// ErrGroupName is wrapped when the name of a group or member breaks the rule of ErrTopicName.
	ErrGroupName = errors.New("bad group or member name")
	// ErrStreamKey is wrapped when the key of a single-stream topic cannot be used.
	ErrStreamKey = errors.New("bad stream key")
	// ErrPartitions is wrapped when a number of partitions is not 1…MaxPartitions, or smaller than the topic's.
	ErrPartitions = errors.New("bad number of partitions")
	// ErrPartition is wrapped when a message asks for a partition that its topic does not have.
	ErrPartition = errors.New("no such partition")
	// ErrTooLarge is wrapped when a payload, a key or headers are larger than their limit.
	ErrTooLarge = errors.New("too large")
	// ErrHeader is wrapped when a header's name is empty or a name or value is not valid UTF-8.
	ErrHeader = errors.New("bad header")
	// ErrUnknownTopic is wrapped when a topic was never created, or was deleted.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrLayout is wrapped when a topic was written with the other key layout, or the server needs the other one.
	ErrLayout = errors.New("other key layout")
	// ErrEviction is wrapped when the server may drop keys to free memory: nothing in it would be durable.
	ErrEviction = errors.New("the server may evict keys")
	// ErrServer is wrapped when the server is too old.
	ErrServer = errors.New("unsupported server")
	// ErrFull is wrapped when the server refuses writes because its memory is full.
	ErrFull = errors.New("the server's memory is full")
	// ErrUnavailable is wrapped when the server did not answer or refused for a reason that passes.
	ErrUnavailable = errors.New("server unavailable")
	// ErrMalformed is wrapped when an entry, a retry item or a dead letter cannot be read.
	ErrMalformed = errors.New("malformed")
	// ErrNotFound is wrapped when a dead letter is not there.
	ErrNotFound = errors.New("not found")
	// ErrReplayed is wrapped when a dead letter was replayed before.
	ErrReplayed = errors.New("replayed before")
	// ErrEntryID is wrapped when the id of an entry is not of the form ms-seq.
	ErrEntryID = errors.New("bad entry id")
	// ErrGroupLive is wrapped when a group has members with a heartbeat, and what was asked would pull the ground from
	// under them.
	ErrGroupLive = errors.New("the group has live members")
	// ErrForeignGroup is wrapped when a group's partitions are leased to a program that is no member of this queue: a consumer of
	// the Java original. Its writes are not fenced, so one kind at a time may consume a group.
	ErrForeignGroup = errors.New("another program consumes the group")
	// ErrNoReply is wrapped when a request was not answered in time. It may have been run.
	ErrNoReply = errors.New("no reply in time")
	// ErrRemote is wrapped by what a request failed with for good.
	ErrRemote = errors.New("the request failed")
	// ErrPermanent is for handlers to wrap: no other attempt can cure this; see FromError.
	ErrPermanent = errors.New("permanent")
	// ErrSettled is wrapped when a delivery was settled before.
	ErrSettled = errors.New("settled before")
	// ErrNotHeld is wrapped when a delivery is not this member's any more: another has it, or it is delivered again.
	ErrNotHeld = errors.New("not held any more")
	// ErrPanic is wrapped by the error of a handler that panicked.
	ErrPanic = errors.New("handler panicked")
	// ErrRunning is returned by a second Run of the same subscriber.
	ErrRunning = errors.New("subscriber ran before")
)

var errNoReason = errors.New("no reason was given")

// Failure says what was being done, and wraps the caller's own ctx error if there is one, ErrEntryID for an id that the server
// cannot read, else ErrFull or ErrUnavailable.
func Failure(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case stream.IsError(err, "Invalid stream ID"):
		return fmt.Errorf("%s: %w: %w", doing, ErrEntryID, err)
	case stream.IsError(err, "OOM "):
		return fmt.Errorf("%s: %w: %w", doing, ErrFull, err)
	default:
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
}

// IsPassing tells that trying again later may help.
func IsPassing(err error) bool { return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull) }
