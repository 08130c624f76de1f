package streammq

import (
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/admin"
	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/deadletter"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/produce"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// The names of the queue's settings, headers, events and outcomes.
const (
	// Defaults of contract §6.
	DefaultPartitions    = model.DefaultPartitions
	DefaultBatch         = model.DefaultBatch
	DefaultPoll          = model.DefaultPoll
	DefaultLease         = model.DefaultLease
	DefaultRenew         = model.DefaultRenew
	DefaultRebalance     = model.DefaultRebalance
	DefaultPendingScan   = model.DefaultPendingScan
	DefaultClaimIdle     = model.DefaultClaimIdle
	DefaultClaimBatch    = model.DefaultClaimBatch
	DefaultMaxAttempts   = model.DefaultMaxAttempts
	DefaultMaxUnanswered = model.DefaultMaxUnanswered
	DefaultBackoff       = model.DefaultBackoff
	DefaultMaxBackoff    = model.DefaultMaxBackoff
	DefaultMoverBatch    = model.DefaultMoverBatch
	DefaultMoverEvery    = model.DefaultMoverEvery
	DefaultRetention     = model.DefaultRetention
	DefaultTrimEvery     = model.DefaultTrimEvery
	DefaultInlineMax     = model.DefaultInlineMax
	DefaultMaxPayload    = model.DefaultMaxPayload
	DefaultStopTimeout   = model.DefaultStopTimeout

	// Bounds of what makes sense.
	MaxPartitions = model.MaxPartitions // of a topic

	// The layouts of contract §6.
	LayoutSingle  = model.LayoutSingle  // one Redis, with or without Sentinel
	LayoutCluster = model.LayoutCluster // Redis Cluster: what one script touches carries its stream key as hash tag

	InlineAuto = model.InlineAuto // lets the layout decide where payloads lie; see Config.InlineMax

	// The places.
	LettersAuto   = model.LettersAuto   // LettersOwn once a consumer in Java is seen in the topic
	LettersShared = model.LettersShared // stream:topic:{t}:dlq, for topics without consumers in Java
	LettersOwn    = model.LettersOwn    // streaming:mq:letters:{t}, which no program in Java reads

	// Headers that the queue itself reads or writes.
	HeaderUUID           = model.HeaderUUID           // the message's business id
	HeaderUser           = model.HeaderUser           // names the user whose message it is
	HeaderForcePartition = model.HeaderForcePartition // the partition, whatever the partitioner says
	HeaderOriginalID     = model.HeaderOriginalID     // the id of the first entry of a message that was added again
	HeaderPartition      = model.HeaderPartition      // the partition of that first entry
	HeaderReplyTo        = model.HeaderReplyTo        // the Requester that waits for a reply
	HeaderCorrelationID  = model.HeaderCorrelationID  // what the reply must carry
	HeaderReplyTimeout   = model.HeaderReplyTimeout   // how long it is waited for, in ms from the first entry on
	HeaderRetryGroup     = model.HeaderRetryGroup     // the only group that an entry added again is for
	HeaderRetryCount     = model.HeaderRetryCount     // how often this queue has put the message off
	HeaderPayloadRef     = model.HeaderPayloadRef     // a STRING of JSON with a large payload of the Java original
	HeaderPayloadStorage = model.HeaderPayloadStorage
	HeaderPayloadSize    = model.HeaderPayloadSize

	HeaderContentType = model.HeaderContentType // names how a payload is encoded; the typed functions set it

	// Limits of a message.
	MaxKey     = model.MaxKey     // bytes of a message's key
	MaxHeaders = model.MaxHeaders // bytes of all names and values of a message's headers

	// The outcomes of a handler.
	OutcomeSuccess    = model.OutcomeSuccess    // done: acknowledged
	OutcomeRetry      = model.OutcomeRetry      // again later, by the RetryPolicy; after the last attempt as OutcomeFail
	OutcomeFail       = model.OutcomeFail       // never again: the DeadLetterPolicy decides
	OutcomeDeadLetter = model.OutcomeDeadLetter // to the dead letters, whatever the policy
	OutcomeSettled    = model.OutcomeSettled    // the handler has settled it, or will: see Delivery.Ack

	// The kinds of events.
	EventProduced    = model.EventProduced    // messages added by a producer; Err tells a failure
	EventConsumed    = model.EventConsumed    // messages read for a handler
	EventHandled     = model.EventHandled     // a handler ended: Outcome, Took
	EventAcked       = model.EventAcked       // entries acknowledged
	EventRetried     = model.EventRetried     // entries put off
	EventDead        = model.EventDead        // entries that became dead letters
	EventDropped     = model.EventDropped     // failed entries that the policy keeps no dead letter of
	EventRefused     = model.EventRefused     // writes refused because another has the entry; Of: what they were
	EventFailed      = model.EventFailed      // writes that failed, for Err; Of: what they were
	EventLost        = model.EventLost        // pending entries whose data was removed from the stream
	EventMoved       = model.EventMoved       // retry items added to their stream again
	EventQuarantined = model.EventQuarantined // malformed retry items put aside
	EventTrimmed     = model.EventTrimmed     // finished entries removed by retention
	EventOwned       = model.EventOwned       // Count is the number of partitions that the member owns now
	EventLeft        = model.EventLeft        // the member's Run ended: nothing more comes from it
	EventUnowned     = model.EventUnowned     // Count is the number of partitions that the caps of all members leave over
	EventPinConflict = model.EventPinConflict // Count is the number of partitions that more than one live member has pinned
	EventZombie      = model.EventZombie      // names of dead consumers removed, or in a dry run found
	EventReplied     = model.EventReplied     // replies written; Err tells those that found nobody to read them
	EventLateReply   = model.EventLateReply   // replies that came when nobody waited for them any more
	EventOverdue     = model.EventOverdue     // requests acknowledged without a run: nobody waits for their reply any more
	EventHealed      = model.EventHealed      // a topic, stream or group that was lost was made again

	// The kinds of jitter of a delay d.
	JitterNone  = model.JitterNone  // d
	JitterEqual = model.JitterEqual // d/2 … d
	JitterFull  = model.JitterFull  // 0 … d

	// The policies for OutcomeFail and used-up attempts.
	DeadLetterKeep = model.DeadLetterKeep // a dead letter
	DeadLetterDrop = model.DeadLetterDrop // acknowledged, and counted

	// The retry modes.
	RetryRepublish = model.RetryRepublish // acknowledged, stored apart, and added again when it is due
	RetryInPlace   = model.RetryInPlace   // left pending until it is due, and keeps the stream from being trimmed

	// The policies.
	DeleteNever         = model.DeleteNever
	DeleteImmediately   = model.DeleteImmediately   // with the acknowledgement, while the stream has one group
	DeleteWhenAllFinish = model.DeleteWhenAllFinish // with the acknowledgement of the last group

	// The states.
	StatePending    = model.StatePending
	StateProcessing = model.StateProcessing
	StateCompleted  = model.StateCompleted
	StateFailed     = model.StateFailed

	// The formats.
	FormatOwn            = wire.FormatOwn            // that of this package, see EncodeEntry
	FormatFastStream     = wire.FormatFastStream     // its binary envelope, read from 0.6 on
	FormatFastStreamJSON = wire.FormatFastStreamJSON // FastStream's JSON envelope, the default up to 0.6, which later ones read

	// Headers that FastStream reads or writes.
	FastStreamCorrelationID = wire.FastStreamCorrelationID // joins a reply with its request
	FastStreamReplyTo       = wire.FastStreamReplyTo       // the Pub/Sub channel on which a reply is expected

	// Defaults of a Requester.
	DefaultRequestTimeout = produce.DefaultRequestTimeout
	DefaultReplyTTL       = produce.DefaultReplyTTL

	// Defaults of ZOMBIE_* in contract §7.
	DefaultZombieInterval = consume.DefaultZombieInterval
	DefaultZombieMinIdle  = consume.DefaultZombieMinIdle

	// The roles.
	RoleMain  = consume.RoleMain  // reads new entries, and its own retries
	RoleClaim = consume.RoleClaim // takes entries of consumers that are dead or silent
	RoleBoth  = consume.RoleBoth

	// The orders, the largest first; ties by partition and id.
	PendingByIdle       = admin.PendingByIdle
	PendingByDeliveries = admin.PendingByDeliveries
)

// Errors of this package. Each is wrapped with what was given and with the limit that it passes.
var (
	ErrConfig       = model.ErrConfig
	ErrTopicName    = model.ErrTopicName
	ErrGroupName    = model.ErrGroupName
	ErrStreamKey    = model.ErrStreamKey
	ErrPartitions   = model.ErrPartitions
	ErrPartition    = model.ErrPartition
	ErrTooLarge     = model.ErrTooLarge
	ErrHeader       = model.ErrHeader
	ErrUnknownTopic = model.ErrUnknownTopic
	ErrLayout       = model.ErrLayout
	ErrEviction     = model.ErrEviction
	ErrServer       = model.ErrServer
	ErrFull         = model.ErrFull
	ErrUnavailable  = model.ErrUnavailable
	ErrMalformed    = model.ErrMalformed
	ErrNotFound     = model.ErrNotFound
	ErrReplayed     = model.ErrReplayed
	ErrEntryID      = model.ErrEntryID
	ErrGroupLive    = model.ErrGroupLive
	ErrForeignGroup = model.ErrForeignGroup
	ErrNoReply      = model.ErrNoReply
	ErrRemote       = model.ErrRemote
	ErrPermanent    = model.ErrPermanent
	ErrSettled      = model.ErrSettled
	ErrNotHeld      = model.ErrNotHeld
	ErrPanic        = model.ErrPanic
	ErrRunning      = model.ErrRunning
)

// ErrStuck is wrapped by Run's error when a handler did not return in twice the StopTimeout; its goroutine
// lives on.
var ErrStuck = consume.ErrStuck

// The types of the queue, each documented with its package.
type (
	Layout           = model.Layout
	Config           = model.Config
	LetterPlace      = model.LetterPlace
	Topic            = model.Topic
	Message          = model.Message
	Receipt          = model.Receipt
	Outcome          = model.Outcome
	Result           = model.Result
	Delivery         = model.Delivery
	EventKind        = model.EventKind
	Event            = model.Event
	Observer         = model.Observer
	Jitter           = model.Jitter
	RetryPolicy      = model.RetryPolicy
	DeadLetterPolicy = model.DeadLetterPolicy
	RetryMode        = model.RetryMode
	Retention        = model.Retention
	DeletePolicy     = model.DeletePolicy
	State            = model.State
	Status           = model.Status
	StatusError      = model.StatusError
	PanicError       = model.PanicError

	Letter = wire.Letter
	Format = wire.Format

	TopicInfo = core.TopicInfo

	Partitioner     = produce.Partitioner
	Producer        = produce.Producer
	RequesterConfig = produce.RequesterConfig
	Reply           = produce.Reply
	RemoteError     = produce.RemoteError
	Requester       = produce.Requester
	StreamProducer  = produce.StreamProducer

	ConsumerConfig   = consume.ConsumerConfig
	Consumer         = consume.Consumer
	JanitorConfig    = consume.JanitorConfig
	Subscriber       = consume.Subscriber
	Handler          = consume.Handler
	Role             = consume.Role
	SubscriberConfig = consume.SubscriberConfig

	LetterHandler    = deadletter.LetterHandler
	LetterSubscriber = deadletter.LetterSubscriber
	LetterQuery      = deadletter.LetterQuery
	Letters          = deadletter.Letters

	Admin          = admin.Admin
	GroupLiveError = admin.GroupLiveError
	Stored         = admin.Stored
	Position       = admin.Position
	Reset          = admin.Reset
	Removal        = admin.Removal
	PartitionStats = admin.PartitionStats
	GroupInfo      = admin.GroupInfo
	ConsumerInfo   = admin.ConsumerInfo
	Owners         = admin.Owners
	PartitionOwner = admin.PartitionOwner
	MemberInfo     = admin.MemberInfo
	PendingEntry   = admin.PendingEntry
	PendingOrder   = admin.PendingOrder
	PendingQuery   = admin.PendingQuery
	Stats          = admin.Stats
	PartitionCount = admin.PartitionCount
	PartitionTrim  = admin.PartitionTrim
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
func StreamKey(topic string, partition int) string {
	return core.Source{Topic: topic, Part: partition}.Stream()
}

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
