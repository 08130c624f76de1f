package streammq

import (
	"github.com/millweir/millweir/pkg/streammq/internal/admin"
	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/produce"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// Defaults of contract §6.
const (
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
)

// Bounds of what makes sense.
const (
	MaxPartitions = model.MaxPartitions // of a topic
)

// The layouts of contract §6. A topic's layout is written into its meta; the other one is refused.
const (
	LayoutSingle  = model.LayoutSingle  // one Redis, with or without Sentinel
	LayoutCluster = model.LayoutCluster // Redis Cluster: what one script touches carries its stream key as hash tag
)

// InlineAuto lets the layout decide where payloads lie; see Config.InlineMax.
const InlineAuto = model.InlineAuto

// The places.
const (
	// LettersAuto is LettersOwn from when on a consumer of the Java original is seen in the topic, unless what
	// it wrote shows that its client has StringCodec, and LettersShared until then.
	LettersAuto = model.LettersAuto
	// LettersShared is stream:topic:{t}:dlq, for topics without consumers in Java, or whose clients have
	// StringCodec.
	LettersShared = model.LettersShared
	// LettersOwn is streaming:mq:letters:{t}, which no program in Java reads.
	LettersOwn = model.LettersOwn
)

// Headers that the queue itself reads or writes.
const (
	// HeaderUUID is the message's business id.
	HeaderUUID = model.HeaderUUID
	// HeaderUser names the user whose message it is.
	HeaderUser = model.HeaderUser
	// HeaderForcePartition sends a message to the partition with this number, modulo the partitions, whatever
	// the partitioner says.
	HeaderForcePartition = model.HeaderForcePartition
	// HeaderOriginalID is the id of the first entry of a message that was added again by a retry or a replay.
	HeaderOriginalID = model.HeaderOriginalID
	// HeaderPartition is the partition of that first entry.
	HeaderPartition = model.HeaderPartition
	// HeaderReplyTo names the Requester that waits for a reply; HeaderCorrelationID is what the reply must
	// carry, and HeaderReplyTimeout how long it is waited for, in ms from the message's first entry.
	HeaderReplyTo       = model.HeaderReplyTo
	HeaderCorrelationID = model.HeaderCorrelationID
	HeaderReplyTimeout  = model.HeaderReplyTimeout
	// HeaderRetryGroup names the group that an entry added again is for: the other groups have seen the message.
	HeaderRetryGroup = model.HeaderRetryGroup
	// HeaderRetryCount is how often this queue has put the message off; what the entry's retryCount has above it
	// the Java original did.
	HeaderRetryCount = model.HeaderRetryCount
	// HeaderPayloadRef names a STRING of JSON that holds the payload of a large message of the Java original,
	// with HeaderPayloadStorage "hash"; HeaderPayloadSize is its length as JSON.
	HeaderPayloadRef     = model.HeaderPayloadRef
	HeaderPayloadStorage = model.HeaderPayloadStorage
	HeaderPayloadSize    = model.HeaderPayloadSize
)

// HeaderContentType names how a payload is encoded; the typed functions set it.
const HeaderContentType = model.HeaderContentType

// Limits of a message. The payload's is Config.MaxPayload.
const (
	MaxKey     = model.MaxKey     // bytes of a message's key
	MaxHeaders = model.MaxHeaders // bytes of all names and values of a message's headers
)

// The outcomes of a handler.
const (
	OutcomeSuccess    = model.OutcomeSuccess    // done: acknowledged
	OutcomeRetry      = model.OutcomeRetry      // again later, by the RetryPolicy; after the last attempt as OutcomeFail
	OutcomeFail       = model.OutcomeFail       // never again: the DeadLetterPolicy decides
	OutcomeDeadLetter = model.OutcomeDeadLetter // to the dead letters, whatever the policy
	OutcomeSettled    = model.OutcomeSettled    // the handler has settled it, or will: see Delivery.Ack
)

// The kinds of events.
const (
	EventProduced    = model.EventProduced    // messages added by a producer; Err tells a failure
	EventConsumed    = model.EventConsumed    // messages read for a handler
	EventHandled     = model.EventHandled     // a handler ended: Outcome, Took
	EventAcked       = model.EventAcked       // entries acknowledged
	EventRetried     = model.EventRetried     // entries put off
	EventDead        = model.EventDead        // entries that became dead letters
	EventDropped     = model.EventDropped     // failed entries that the policy keeps no dead letter of
	EventRefused     = model.EventRefused     // writes refused because another owner, or a later delivery, has the entry; Of: what they were
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
)

// The kinds of jitter of a delay d.
const (
	JitterNone  = model.JitterNone  // d
	JitterEqual = model.JitterEqual // d/2 … d
	JitterFull  = model.JitterFull  // 0 … d
)

// The policies for OutcomeFail and used-up attempts. OutcomeDeadLetter always keeps a dead letter.
const (
	DeadLetterKeep = model.DeadLetterKeep // a dead letter
	DeadLetterDrop = model.DeadLetterDrop // acknowledged, and counted
)

// The retry modes.
const (
	// RetryRepublish acknowledges the entry, stores its message apart and adds it to the same partition when it
	// is due.
	RetryRepublish = model.RetryRepublish
	// RetryInPlace leaves the entry pending; it is delivered again when it is due, and pins the stream until
	// then.
	RetryInPlace = model.RetryInPlace
)

// The policies. A stream from which entries were deleted has a lag that the server cannot tell; it is counted
// then.
const (
	DeleteNever         = model.DeleteNever
	DeleteImmediately   = model.DeleteImmediately   // while the stream has one group, with its acknowledgement; with more of them never
	DeleteWhenAllFinish = model.DeleteWhenAllFinish // with the acknowledgement of the last group
)

// The states. Failed is left again by a retry or a replay; completed is final.
const (
	StatePending    = model.StatePending
	StateProcessing = model.StateProcessing
	StateCompleted  = model.StateCompleted
	StateFailed     = model.StateFailed
)

// The formats. A topic's partitions have FormatOwn only.
const (
	// FormatOwn is that of this package, see EncodeEntry.
	FormatOwn = wire.FormatOwn
	// FormatFastStream is FastStream's binary envelope, which FastStream writes and reads from 0.6 on, by
	// default from 0.7 on.
	FormatFastStream = wire.FormatFastStream
	// FormatFastStreamJSON is FastStream's JSON envelope, the default up to 0.6, which later ones read.
	FormatFastStreamJSON = wire.FormatFastStreamJSON
)

// Headers that FastStream reads or writes. Beside them it knows HeaderContentType.
const (
	// FastStreamCorrelationID joins a reply with its request.
	FastStreamCorrelationID = wire.FastStreamCorrelationID
	// FastStreamReplyTo is the Pub/Sub channel on which a reply is expected.
	FastStreamReplyTo = wire.FastStreamReplyTo
)

// Defaults of a Requester.
const (
	DefaultRequestTimeout = produce.DefaultRequestTimeout
	DefaultReplyTTL       = produce.DefaultReplyTTL
)

// Defaults of ZOMBIE_* in contract §7.
const (
	DefaultZombieInterval = consume.DefaultZombieInterval
	DefaultZombieMinIdle  = consume.DefaultZombieMinIdle
)

// The roles.
const (
	RoleMain  = consume.RoleMain  // reads new entries, and its own retries
	RoleClaim = consume.RoleClaim // takes entries of consumers that are dead or silent
	RoleBoth  = consume.RoleBoth
)

// The orders, the largest first; ties by partition and id.
const (
	PendingByIdle       = admin.PendingByIdle
	PendingByDeliveries = admin.PendingByDeliveries
)
