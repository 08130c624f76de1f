package consume

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// Handler runs one message. ctx ends when the message is no longer this member's to run: its lease is lost, the
// HandlerTimeout has passed, or the subscriber stops and StopTimeout is over. A panic is caught and is a Retry.
type Handler func(ctx context.Context, d *model.Delivery) model.Result

// Role is the part of a subscriber on a single stream.
type Role string

// The roles.
const (
	RoleMain  Role = "main"  // reads new entries, and its own retries
	RoleClaim Role = "claim" // takes entries of consumers that are dead or silent
	RoleBoth  Role = "both"
)

// SubscriberConfig is what a subscriber needs. NewDefaultSubscriberConfig gives every default.
type SubscriberConfig struct {
	// Topic is the partitioned topic; empty for a single stream.
	Topic string
	// StreamKey is the key of a single stream, used as it is; empty for a topic. It knows neither partitions nor leases.
	StreamKey string
	// Format is that of a single stream that others write too. Entries in FastStream's envelope are read whatever it says; with a
	// format of FastStream's those without an envelope are read as FastStream does: the payload is a JSON object of the fields.
	Format wire.Format
	// Group shares the messages among its members.
	Group string
	// Member is the stable name of this process for people and metrics; a random part is added at each start.
	// On a single stream it is the consumer's name as it is, and no two live processes may share it.
	Member string
	// Handler runs the messages: one at a time per partition, or with Concurrency one per key.
	Handler Handler

	// Role is the part on a single stream; topics have RoleMain only.
	Role Role
	// Start is where a group begins that is not there yet: "0", "$" (what comes from now on) or an entry's id.
	Start string
	// Batch is the most entries of one read.
	Batch int
	// ClaimBatch is the most pending entries taken over at once.
	ClaimBatch int
	// Poll is the longest wait for new entries before looking again.
	Poll time.Duration
	// Lease is how long a partition, or a heartbeat, stays with a member that does not answer.
	Lease time.Duration
	// Renew is the time between two renewals; well below Lease.
	Renew time.Duration
	// Rebalance is the time between two looks at how the partitions are shared.
	Rebalance time.Duration
	// Cap is the most partitions that this member takes; 0: any number.
	Cap int
	// Concurrency is the most handlers that run at once in a partition. Above 1 the messages of one key still run one after
	// another and in their order, those without a key beside each other; a batch ends with its slowest message.
	Concurrency int
	// Pin are partitions that are this member's own while it lives: no other takes them, and who has one gives it up. The
	// rest is shared with these counted. When several live members pin the same one, its owner keeps it, else the first by
	// name gets it; EventPinConflict tells. A partition that the topic does not have yet is no error.
	Pin []int
	// MaxInFlight is the most handlers that run at once; 0: Concurrency for each partition.
	MaxInFlight int
	// PendingScan is the time between two looks for entries to claim on a single stream.
	PendingScan time.Duration
	// ClaimIdle is how long an entry of a live consumer must be untouched to be claimed on a single stream.
	ClaimIdle time.Duration
	// Retry says how often and when failed messages run again, RetryMode where they wait meanwhile: in place
	// with RoleClaim, whatever RetryMode says, since a claimer reads nothing new.
	Retry     model.RetryPolicy
	RetryMode model.RetryMode
	// MaxUnanswered is how often an entry may be delivered without an outcome before it is a dead letter without a run:
	// what kills its process, or hangs, must not do so for ever. A batch that changes hands counts too. 0: any number.
	MaxUnanswered int
	// DeadLetters says what becomes of messages that failed for good.
	DeadLetters model.DeadLetterPolicy
	// DeadLetterStream is the key of a stream that dead letters go to, shared with other topics perhaps; see
	// MQ.NamedLetters. Empty: the topic's own. On a cluster, where it lies in another slot, the dead letter is written first,
	// once for each entry, and the entry acknowledged after it.
	DeadLetterStream string
	// MoverBatch and MoverEvery bound the moves of republished messages: so many at once, a look at least that often.
	MoverBatch int
	MoverEvery time.Duration
	// Retention of finished entries, looked at every TrimEvery; the zero Retention keeps all.
	Retention model.Retention
	TrimEvery time.Duration
	// Delete says whether this group's acknowledgements, retries and dead letters delete their entries at once.
	Delete model.DeletePolicy
	// DeadLetterRetention is what is kept of dead letters, looked at every TrimEvery; the zero Retention keeps all. Letters that
	// a group consumes and has not finished stay.
	DeadLetterRetention model.Retention
	// Status writes the status of a single stream's messages that have a uuid; a topic has an option of its own.
	Status bool
	// Janitor removes the names of dead consumers.
	Janitor JanitorConfig
	// HandlerTimeout ends a handler's ctx; one that does not return within another Lease loses its partition. 0: never.
	HandlerTimeout time.Duration
	// StopTimeout is how long running handlers may finish after Run's ctx has ended, and again after theirs has.
	StopTimeout time.Duration
}

// NewDefaultSubscriberConfig has the defaults of contract §6 for a topic.
func NewDefaultSubscriberConfig(topic, group string, handler Handler) SubscriberConfig {
	return SubscriberConfig{
		Topic: topic, Group: group, Member: "member", Handler: handler, Role: RoleMain, Start: "0",
		Concurrency: 1, Batch: model.DefaultBatch, ClaimBatch: model.DefaultClaimBatch, Poll: model.DefaultPoll,
		Lease: model.DefaultLease, Renew: model.DefaultRenew, Rebalance: model.DefaultRebalance,
		PendingScan: model.DefaultPendingScan, ClaimIdle: model.DefaultClaimIdle,
		Retry:     model.RetryPolicy{Backoff: model.DefaultBackoff, MaxBackoff: model.DefaultMaxBackoff},
		RetryMode: model.RetryRepublish, MaxUnanswered: model.DefaultMaxUnanswered, DeadLetters: model.DeadLetterKeep,
		MoverBatch: model.DefaultMoverBatch, MoverEvery: model.DefaultMoverEvery,
		Retention: model.Retention{MaxLen: model.DefaultRetention}, TrimEvery: model.DefaultTrimEvery, StopTimeout: model.DefaultStopTimeout,
		Janitor: JanitorConfig{Interval: DefaultZombieInterval, MinIdle: DefaultZombieMinIdle},
	}
}

// NewDefaultStreamConfig has the defaults for a single stream: retries in place, both roles, nothing trimmed.
func NewDefaultStreamConfig(key, group, consumer string, handler Handler) SubscriberConfig {
	c := NewDefaultSubscriberConfig("", group, handler)
	c.StreamKey, c.Member, c.Role, c.RetryMode, c.Retention = key, consumer, RoleBoth, model.RetryInPlace, model.Retention{}
	return c
}

// Validate names every setting that is out of its range.
func (c SubscriberConfig) Validate() error {
	var p model.Problems
	p.Refuse((c.Topic == "") == (c.StreamKey == ""), "one of Topic and StreamKey must be set")
	if c.StreamKey != "" {
		p.Check(model.CheckStreamKey(c.StreamKey))
		p.Refuse(c.Cap != 0, "Cap %d: a single stream has no partitions", c.Cap)
		p.Refuse(!wire.Known(c.Format), "Format %q: unknown", c.Format)
	} else if c.Topic != "" {
		p.Check(model.CheckName(c.Topic, model.ErrTopicName))
		p.Refuse(c.Status, "Status: must be set on the topic")
		p.Refuse(c.Format != wire.FormatOwn, "Format %q: of a single stream only", c.Format)
		p.Refuse(c.Role != RoleMain, "Role %q: the owner of a partition takes its pending entries, others cannot claim", c.Role)
	}
	p.Check(model.CheckName(c.Group, model.ErrGroupName))
	p.Check(model.CheckName(c.Member, model.ErrGroupName))
	p.Refuse(c.Handler == nil, "Handler must be set")
	p.Refuse(c.Role != RoleMain && c.Role != RoleClaim && c.Role != RoleBoth, "Role %q: unknown", c.Role)
	p.Refuse(c.Start != "$" && model.CheckID(c.Start) != nil, "Start %q: must be 0, $ or an id", c.Start)
	p.Refuse(c.Batch < 1 || c.Batch > model.MaxBatch, "Batch %d: 1 to %d", c.Batch, model.MaxBatch)
	p.Refuse(c.ClaimBatch < 1 || c.ClaimBatch > model.MaxBatch, "ClaimBatch %d: 1 to %d", c.ClaimBatch, model.MaxBatch)
	p.Refuse(c.MoverBatch < 1 || c.MoverBatch > model.MaxBatch, "MoverBatch %d: 1 to %d", c.MoverBatch, model.MaxBatch)
	p.Refuse(c.Concurrency < 1 || c.Concurrency > model.MaxBatch, "Concurrency %d: 1 to %d", c.Concurrency, model.MaxBatch)
	p.Refuse(c.Cap < 0 || c.MaxInFlight < 0, "Cap %d, MaxInFlight %d: must not be negative", c.Cap, c.MaxInFlight)
	p.Refuse(c.Lease < 2*c.Renew || c.Renew < time.Millisecond, "Lease %s, Renew %s: at least twice Renew, and 1ms", c.Lease, c.Renew)
	for name, d := range map[string]time.Duration{
		"Poll": c.Poll, "Rebalance": c.Rebalance, "PendingScan": c.PendingScan, "ClaimIdle": c.ClaimIdle,
		"MoverEvery": c.MoverEvery, "TrimEvery": c.TrimEvery, "StopTimeout": c.StopTimeout,
	} {
		p.Refuse(d < time.Millisecond, "%s %s: at least 1ms", name, d)
	}
	p.Refuse(c.HandlerTimeout < 0, "HandlerTimeout %s: must not be negative", c.HandlerTimeout)
	p.Refuse(c.Retention.MaxLen < 0 || c.Retention.MaxAge < 0, "Retention %+v: must not be negative", c.Retention)
	letters := c.DeadLetterRetention
	p.Refuse(letters.MaxLen < 0 || letters.MaxAge < 0, "DeadLetterRetention %+v: must not be negative", letters)
	p.Refuse(c.Delete != model.DeleteNever && c.Delete != model.DeleteImmediately && c.Delete != model.DeleteWhenAllFinish, "Delete %q: unknown", c.Delete)
	if c.DeadLetterStream != "" {
		p.Check(model.CheckStreamKey(c.DeadLetterStream))
		p.Refuse(c.DeadLetterStream == c.StreamKey, "DeadLetterStream %q: must not be the stream itself", c.DeadLetterStream)
	}
	c.validatePins(&p)
	c.Janitor.validate(&p)
	c.validateRetry(&p)
	return p.Err()
}

func (c SubscriberConfig) validateRetry(p *model.Problems) {
	r := c.Retry
	p.Refuse(r.MaxAttempts < 0 || r.MaxAttempts > model.MaxAttempts, "Retry.MaxAttempts %d: 0 to %d", r.MaxAttempts, model.MaxAttempts)
	p.Refuse(c.MaxUnanswered < 0, "MaxUnanswered %d: must not be negative", c.MaxUnanswered)
	p.Refuse(r.Backoff < 0 || r.MaxBackoff < r.Backoff, "Retry.Backoff %s, MaxBackoff %s: 0 or more, in that order", r.Backoff, r.MaxBackoff)
	p.Refuse(r.Jitter != model.JitterNone && r.Jitter != model.JitterEqual && r.Jitter != model.JitterFull, "Retry.Jitter %q: unknown", r.Jitter)
	p.Refuse(c.RetryMode != model.RetryRepublish && c.RetryMode != model.RetryInPlace, "RetryMode %q: unknown", c.RetryMode)
	p.Refuse(c.DeadLetters != model.DeadLetterKeep && c.DeadLetters != model.DeadLetterDrop, "DeadLetters %q: unknown", c.DeadLetters)
}

// validatePins names what is wrong with them.
func (c SubscriberConfig) validatePins(p *model.Problems) {
	p.Refuse(len(c.Pin) > 0 && c.StreamKey != "", "Pin %v: a single stream has no partitions", c.Pin)
	p.Refuse(c.Cap > 0 && len(c.Pin) > c.Cap, "Pin: %d partitions, Cap %d: at least as many", len(c.Pin), c.Cap)
	seen := map[int]bool{}
	for _, partition := range c.Pin {
		p.Refuse(partition < 0 || partition >= model.MaxPartitions, "Pin %d: 0 to %d", partition, model.MaxPartitions-1)
		p.Refuse(seen[partition], "Pin %d: twice", partition)
		seen[partition] = true
	}
}

// JanitorConfig says which consumers' names are removed from their group: those without a heartbeat that have been idle
// for long and hold little. Each start of a member has a name of its own, so that names of the dead gather.
type JanitorConfig struct {
	// Interval between two looks, the first at start; 0: none.
	Interval time.Duration
	// MinIdle is how long the consumer must have been idle.
	MinIdle time.Duration
	// MaxPending is the most pending entries that it may have; they are moved to the member that removes it.
	MaxPending int
	// DryRun only logs and counts.
	DryRun bool
}

// Defaults of ZOMBIE_* in contract §7.
const (
	DefaultZombieInterval = 10 * time.Minute
	DefaultZombieMinIdle  = 72 * time.Hour
)

func (c JanitorConfig) validate(p *model.Problems) {
	p.Refuse(c.Interval < 0 || c.MinIdle < 0, "Janitor.Interval %s, MinIdle %s: must not be negative", c.Interval, c.MinIdle)
	p.Refuse(c.MaxPending < 0 || c.MaxPending > maxZombiePending, "Janitor.MaxPending %d: 0 to %d", c.MaxPending, maxZombiePending)
}

const maxZombiePending = 1000 // they are moved inside one script
