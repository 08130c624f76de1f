package model

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Defaults of contract §6.
const (
	DefaultPartitions    = 1
	DefaultBatch         = 10
	DefaultPoll          = time.Second
	DefaultLease         = 15 * time.Second
	DefaultRenew         = 3 * time.Second
	DefaultRebalance     = 5 * time.Second
	DefaultPendingScan   = 30 * time.Second
	DefaultClaimIdle     = 300 * time.Second
	DefaultClaimBatch    = 50
	DefaultMaxAttempts   = 5
	DefaultMaxUnanswered = 20
	DefaultBackoff       = time.Second
	DefaultMaxBackoff    = 60 * time.Second
	DefaultMoverBatch    = 100
	DefaultMoverEvery    = time.Second
	DefaultRetention     = 100_000
	DefaultTrimEvery     = 60 * time.Second
	DefaultInlineMax     = 64 << 10
	DefaultMaxPayload    = 16 << 20
	DefaultStopTimeout   = 10 * time.Second
	DefaultMetaRefresh   = 5 * time.Second
	DefaultAckDelay      = 5 * time.Millisecond
	DefaultErrorBackoff  = 100 * time.Millisecond
	MaxErrorBackoff      = 5 * time.Second
)

// Bounds of what makes sense.
const (
	MaxPartitions   = 1024      // of a topic
	MaxName         = 200       // bytes of a topic's, group's or member's name
	MaxStreamKey    = 512       // bytes of a single stream's key
	MaxBatch        = 1000      // ids in one script: Lua unpacks them on its stack
	MaxPayloadLimit = 256 << 20 // bytes: Redis' own limit of a value is 512 MiB, and a copy must fit beside it
	PageSize        = 100       // letters or messages of one read
	MaxReplies      = 10_000    // that wait in a stream, roughly; a requester that reads no more loses the oldest
	MaxErrorText    = 2000      // characters of an error in a dead letter
)

// Layout is how keys are named; see the README.
type Layout string

// The layouts of contract §6. A topic's layout is written into its meta; the other one is refused.
const (
	LayoutSingle  Layout = "single"  // one Redis, with or without Sentinel
	LayoutCluster Layout = "cluster" // Redis Cluster: what one script touches carries its stream key as hash tag
)

// Config is what all parts of one MQ share. NewDefaultConfig gives every default.
type Config struct {
	// Layout of the keys.
	Layout Layout
	// InlineMax is the size in bytes up to which a payload lies in its stream's entry; larger ones lie beside it, where only
	// this queue finds them. InlineAuto, the default: in topics of LayoutSingle, which programs in Java may read too, all
	// lie in their entries, elsewhere those up to DefaultInlineMax.
	InlineMax int
	// MaxPayload is the largest payload in bytes.
	MaxPayload int
	// Letters says where the dead letters of topics of LayoutSingle go, unless a subscriber has a DeadLetterStream.
	Letters LetterPlace
	// MetaRefresh is how long a producer trusts what it knows of a topic.
	MetaRefresh time.Duration
	// Now is the clock of the process; leases and due times are judged by Redis' own.
	Now func() time.Time
	// Log receives what a person should see.
	Log *slog.Logger
	// Observer receives what metrics count.
	Observer Observer
}

// InlineAuto lets the layout decide where payloads lie; see Config.InlineMax.
const InlineAuto = -1

// LetterPlace is a stream of dead letters of a topic on one Redis. A client of the Java original with its default codec
// (Kryo 5) lists no dead letter at all of a stream:topic:{t}:dlq that holds one of ours; one with StringCodec lists them all. Letters reads
// both places, and dead letters of either codec, whatever is set.
type LetterPlace string

// The places.
const (
	// LettersAuto is LettersOwn from when on a consumer of the Java original is seen in the topic, unless what it wrote shows
	// that its client has StringCodec, and LettersShared until then. What is in the other place by then moves.
	LettersAuto LetterPlace = ""
	// LettersShared is stream:topic:{t}:dlq, for topics without consumers in Java, or whose clients have StringCodec.
	LettersShared LetterPlace = "shared"
	// LettersOwn is streaming:mq:letters:{t}, which no program in Java reads.
	LettersOwn LetterPlace = "own"
)

// NewDefaultConfig is the configuration of contract §6 for one Redis.
func NewDefaultConfig() Config {
	return Config{
		Layout: LayoutSingle, InlineMax: InlineAuto, MaxPayload: DefaultMaxPayload, MetaRefresh: DefaultMetaRefresh,
		Now: time.Now, Log: slog.New(slog.DiscardHandler), Observer: noObserver{},
	}
}

// Validate names every setting that is out of its range; its error wraps ErrConfig.
func (c Config) Validate() error {
	var p Problems
	p.Refuse(c.Layout != LayoutSingle && c.Layout != LayoutCluster, "Layout %q: must be %s or %s", c.Layout, LayoutSingle, LayoutCluster)
	p.Refuse(c.InlineMax < InlineAuto || c.InlineMax > MaxPayloadLimit, "InlineMax %d: 0 to %d, or InlineAuto (%d)", c.InlineMax, MaxPayloadLimit, InlineAuto)
	p.Refuse(c.MaxPayload < 0 || c.MaxPayload > MaxPayloadLimit, "MaxPayload %d: 0 to %d", c.MaxPayload, MaxPayloadLimit)
	p.Refuse(c.Letters != LettersAuto && c.Letters != LettersShared && c.Letters != LettersOwn,
		"Letters %q: must be %q, %q or empty", c.Letters, LettersShared, LettersOwn)
	p.Refuse(c.MetaRefresh <= 0, "MetaRefresh %s: must be positive", c.MetaRefresh)
	p.Refuse(c.Now == nil || c.Log == nil || c.Observer == nil, "Now, Log and Observer must be set")
	return p.Err()
}

// Problems collects what is wrong with a configuration.
type Problems []error

func (p *Problems) Refuse(bad bool, format string, args ...any) {
	if bad {
		*p = append(*p, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...)))
	}
}

func (p *Problems) Check(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

func (p Problems) Err() error { return errors.Join(p...) }

// Topic is a partitioned topic as it is created.
type Topic struct {
	Name string
	// Partitions is 1…MaxPartitions; it can only grow.
	Partitions int
	// Status keeps the status of each message under task:status:<uuid> for three days; see MQ.Statuses. It costs two
	// commands a message. It can be turned on later, not off. The first group that runs a message writes its status.
	Status bool
}

// Validate names what is wrong; its error wraps ErrTopicName or ErrPartitions.
func (t Topic) Validate() error {
	err := CheckName(t.Name, ErrTopicName)
	if t.Partitions < 1 || t.Partitions > MaxPartitions {
		err = errors.Join(err, fmt.Errorf("%d partitions: %w: 1 to %d", t.Partitions, ErrPartitions, MaxPartitions))
	}
	return err
}

const nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_"

// CheckName keeps names out that would make two keys one: keys are joined with colons, braces make hash tags.
func CheckName(name string, kind error) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%q of %d bytes: %w: 1 to %d", Clip(name, 64), len(name), kind, MaxName)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(nameCharacters, r) }) {
		return fmt.Errorf("%q: %w: only A–Z, a–z, 0–9, dot, dash and underscore", Clip(name, 64), kind)
	}
	return nil
}

// CheckStreamKey allows what other systems name their streams, but no hash tag of their own.
func CheckStreamKey(key string) error {
	if key == "" || len(key) > MaxStreamKey {
		return fmt.Errorf("%q of %d bytes: %w: 1 to %d", Clip(key, 64), len(key), ErrStreamKey, MaxStreamKey)
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == '{' || r == '}' || r == 0x7f }) {
		return fmt.Errorf("%q: %w: no braces, spaces or control characters", Clip(key, 64), ErrStreamKey)
	}
	return nil
}

// Clip cuts a text to at most n bytes without breaking a character.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// CheckID allows "ms-seq" and "ms".
func CheckID(id string) error {
	ms, seq, split := strings.Cut(id, "-")
	_, err := strconv.ParseUint(ms, 10, 64)
	if split && err == nil {
		_, err = strconv.ParseUint(seq, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("%q: %w: ms-seq", Clip(id, 64), ErrEntryID)
	}
	return nil
}

// EventKind says what an Event counts.
type EventKind string

// The kinds of events.
const (
	EventProduced    EventKind = "produced"     // messages added by a producer; Err tells a failure
	EventConsumed    EventKind = "consumed"     // messages read for a handler
	EventHandled     EventKind = "handled"      // a handler ended: Outcome, Took
	EventAcked       EventKind = "acked"        // entries acknowledged
	EventRetried     EventKind = "retried"      // entries put off
	EventDead        EventKind = "dead"         // entries that became dead letters
	EventDropped     EventKind = "dropped"      // failed entries that the policy keeps no dead letter of
	EventRefused     EventKind = "refused"      // writes refused because another owner, or a later delivery, has the entry; Of: what they were
	EventFailed      EventKind = "failed"       // writes that failed, for Err; Of: what they were
	EventLost        EventKind = "lost"         // pending entries whose data was removed from the stream
	EventMoved       EventKind = "moved"        // retry items added to their stream again
	EventQuarantined EventKind = "quarantined"  // malformed retry items put aside
	EventTrimmed     EventKind = "trimmed"      // finished entries removed by retention
	EventOwned       EventKind = "owned"        // Count is the number of partitions that the member owns now
	EventLeft        EventKind = "left"         // the member's Run ended: nothing more comes from it
	EventUnowned     EventKind = "unowned"      // Count is the number of partitions that the caps of all members leave over
	EventPinConflict EventKind = "pin_conflict" // Count is the number of partitions that more than one live member has pinned
	EventZombie      EventKind = "zombie"       // names of dead consumers removed, or in a dry run found
	EventReplied     EventKind = "replied"      // replies written; Err tells those that found nobody to read them
	EventLateReply   EventKind = "late_reply"   // replies that came when nobody waited for them any more
	EventOverdue     EventKind = "overdue"      // requests acknowledged without a run: nobody waits for their reply any more
	EventHealed      EventKind = "healed"       // a topic, stream or group that was lost was made again
)

// Event is something that happened, for metrics. Only the fields that its kind names are set beside Topic and Count.
type Event struct {
	Kind      EventKind
	Topic     string
	Partition int // -1: the whole topic
	Group     string
	Member    string // the stable name, not the one of this start
	Count     int
	Outcome   Outcome
	Took      time.Duration
	Err       error
	Of        EventKind // of EventRefused and EventFailed: EventAcked, EventRetried or EventDead
}

// Observer receives events. It is called from many goroutines, often, and must not block.
type Observer interface {
	Observe(Event)
}

type noObserver struct{}

func (noObserver) Observe(Event) {}

// Jitter says how a policy's delay is spread, so that messages that failed together do not come back together.
type Jitter string

// The kinds of jitter of a delay d.
const (
	JitterNone  Jitter = ""      // d
	JitterEqual Jitter = "equal" // d/2 … d
	JitterFull  Jitter = "full"  // 0 … d
)

// RetryPolicy says how often and when a failed message runs again.
type RetryPolicy struct {
	// MaxAttempts is the number of runs in all; 0: what the message says.
	MaxAttempts int
	// Backoff is the delay after the first failure; it doubles from failure to failure up to MaxBackoff.
	// Equal values give a fixed delay.
	Backoff, MaxBackoff time.Duration
	// Jitter spreads the delays.
	Jitter Jitter
	// Delay, if set, gives the delay after the failed-th failure (from 1) instead of all that.
	Delay func(failed int) time.Duration
}

// DeadLetterPolicy says what becomes of messages that failed for good.
type DeadLetterPolicy string

// The policies for OutcomeFail and used-up attempts. OutcomeDeadLetter always keeps a dead letter.
const (
	DeadLetterKeep DeadLetterPolicy = "keep" // a dead letter
	DeadLetterDrop DeadLetterPolicy = "drop" // acknowledged, and counted
)

// RetryMode says where a failed message waits.
type RetryMode string

// The retry modes.
const (
	// RetryRepublish acknowledges the entry, stores its message apart and adds it to the same partition when it is due.
	RetryRepublish RetryMode = "republish"
	// RetryInPlace leaves the entry pending; it is delivered again when it is due, and pins the stream until then.
	RetryInPlace RetryMode = "in_place"
)

func Exhausted(p RetryPolicy, d *Delivery) bool {
	return d.Attempt >= cmp.Or(p.MaxAttempts, d.MaxAttempts, DefaultMaxAttempts)
}

// Delay after failed failures, from 1.
func Delay(p RetryPolicy, failed int) time.Duration {
	if p.Delay != nil {
		return max(0, p.Delay(failed))
	}
	d := p.Backoff
	for i := 1; i < failed && d < p.MaxBackoff; i++ {
		d += min(d, p.MaxBackoff-d) // twice of it may be more than a Duration holds
	}
	d = min(d, p.MaxBackoff)
	switch {
	case d <= 0 || p.Jitter == JitterNone:
		return max(0, d)
	case p.Jitter == JitterEqual:
		return d/2 + rand.N(d/2+1)
	default:
		return rand.N(d) // d+1 may be more than a Duration holds
	}
}

// Retention is what is kept of entries that every group has finished: MaxLen entries a partition (0: any number), for MaxAge
// (0: any time), or with Finished nothing, while there is a group. What a group has not finished always stays.
type Retention = stream.Keep

func ValidateRetention(r Retention) error {
	var p Problems
	p.Refuse(r.MaxLen < 0 || r.MaxAge < 0, "Retention %+v: must not be negative", r)
	return p.Err()
}

// DeletePolicy says whether entries are deleted as soon as they are finished, instead of by Retention. In either case an entry
// that another group has not finished stays. A payload beside the stream goes with the next trim.
type DeletePolicy string

// The policies. A stream from which entries were deleted has a lag that the server cannot tell; it is counted then.
const (
	DeleteNever         DeletePolicy = ""
	DeleteImmediately   DeletePolicy = "immediate"  // while the stream has one group, with its acknowledgement; with more of them never
	DeleteWhenAllFinish DeletePolicy = "all-groups" // with the acknowledgement of the last group
)
