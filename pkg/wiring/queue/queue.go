// Package queue is what a service needs of the transport that carries deliveries. It links none: wiring/redis and wiring/kafka
// register themselves when a service imports them.
package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/wiring"
)

// The values of INGEST_QUEUE.
const (
	Redis = "redis"
	Kafka = "kafka"
)

// Settings say which queue carries deliveries, and how Redis does.
type Settings struct {
	Kind       string      `envconfig:"INGEST_QUEUE" default:"redis" allowed:"redis|kafka" desc:"which queue carries deliveries"`
	RedisURL   process.DSN `envconfig:"REDIS_URL" desc:"redis://, rediss://, redis-sentinel://host:port,…/master or redis-cluster://host:port,…; not needed with INGEST_QUEUE=kafka"`
	Partitions int         `envconfig:"INGEST_STREAM_PARTITIONS" default:"1" allowed:"1..1024" desc:"1: one stream; more: the partitions of topic ingest-tasks, in which the versions of one document stay in order (they only grow; set it alike everywhere)"`
	StreamKey  string      `envconfig:"INGEST_STREAM_KEY" default:"ingest:tasks" desc:"stream of deliveries"`
	Group      string      `envconfig:"INGEST_STREAM_GROUP" default:"ingest-workers" desc:"consumer group of the workers"`
	TaskKey    string      `envconfig:"TASK_STREAM_KEY" default:"queue:tasks" desc:"stream of workflow tasks on Redis, group persist-workers; another one than INGEST_STREAM_KEY"`
	TaskMaxLen int         `envconfig:"TASK_STREAM_MAXLEN" default:"5000" allowed:"1..100000000" desc:"unfinished entries of TASK_STREAM_KEY from which on deliveries are left to the sweep; nothing unfinished is trimmed"`
	DLQKey     string      `envconfig:"INGEST_REDIS_DLQ_STREAM_KEY" default:"ingest:tasks:dlq" desc:"dead letter stream; set but empty: off"`
}

// Owes tells whether DEAD rows owe an entry of the dead letter stream; on the Kafka transport an event is written with them.
func (s Settings) Owes() bool { return s.Kind == Redis && s.DLQKey != "" }

// KafkaSettings say how to reach Kafka and what is there.
type KafkaSettings struct {
	Bootstrap      string         `envconfig:"KAFKA_BOOTSTRAP_SERVERS" desc:"brokers, host:port,…"`
	TLS            bool           `envconfig:"KAFKA_TLS" default:"false" desc:"talk to the brokers over TLS (SSL_CERT_FILE names other roots than the system's)"`
	Mechanism      string         `envconfig:"KAFKA_SASL_MECHANISM" desc:"PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; not set: no login"`
	User           string         `envconfig:"KAFKA_SASL_USER" desc:"login at the brokers"`
	Password       process.Secret `envconfig:"KAFKA_SASL_PASSWORD" desc:"its password"`
	Topic          string         `envconfig:"INGEST_KAFKA_TOPIC" default:"ingest-tasks" desc:"topic of deliveries; dead letters go to this name and -dlq (millweir kafka init makes both)"`
	Group          string         `envconfig:"INGEST_KAFKA_GROUP" default:"ingest-workers" desc:"consumer group of the workers"`
	RetentionHours int            `envconfig:"OUTBOX_RETENTION_HOURS" default:"168" allowed:"1..876000" desc:"how long sent events are kept in the database"`
}

// Membership says how a member of the workers' group cleans up after others.
type Membership struct {
	ZombieMaxPending              int
	ZombieMinIdle, ZombieInterval time.Duration
	ZombieDryRun                  bool
	// SkipDocuments and SkipWorkflows leave new deliveries of tasks of these types to others; Kafka has one topic for all.
	SkipDocuments, SkipWorkflows bool
}

// Length counts deliveries.
type Length interface {
	StreamLength(ctx context.Context) (int64, error)
}

// Transport is an open queue.
type Transport interface {
	// Describe names it for the start line.
	Describe() string
	// Keeps says what the queue keeps of what it has acknowledged.
	Keeps(ctx context.Context) (string, error)
	// Version returns which server this is, and its version as the server tells it; empty: its protocol tells none.
	Version(ctx context.Context) (product, version string, err error)
	// Publisher makes what adds deliveries after their commit (nil: they are events of the commit itself), and what counts them.
	Publisher() (ingestq.Publisher, Length, error)
	// Member makes a member of the workers' group.
	Member(m Membership) (ingestq.Consumer, error)
	// Inspector looks at the deliveries from outside.
	Inspector() ingestq.Inspector
	// DeadLetters lists the queue's dead letters for operators; nil: it keeps none.
	DeadLetters() ingestq.DeadLetterReader
	// DeadLetterWriter writes dead letters that rows owe since they were on this transport, and another one carries deliveries
	// now; nil: it takes none.
	DeadLetterWriter() ingestq.DeadLetterWriter
}

// Viewer is a transport that shows rows to who looks at its server.
type Viewer interface {
	// WriteView replaces what a key shows: tasks, each with a time.
	WriteView(ctx context.Context, key string, of map[string]time.Time) error
}

// Limiters is a transport whose server limits for all processes together.
type Limiters interface {
	// Limiter makes a limiter whose keys begin with prefix. While the server is away each process limits for itself.
	Limiter(prefix string, limits ...ratelimit.Limit) ratelimit.Limiter
}

// Limiter makes a limiter of a transport that has one; nil: none has, or there is no limit.
func (s Set) Limiter(prefix string, limits ...ratelimit.Limit) ratelimit.Limiter {
	for _, t := range s {
		if l, ok := t.(Limiters); ok && len(limits) > 0 {
			return l.Limiter(prefix, limits...)
		}
	}
	return nil
}

// Link is a transport that a program links.
type Link struct {
	Kind string
	// Validate judges the settings as far as the transport is used.
	Validate func(s Settings, k KafkaSettings) error
	// Open opens the transport; nil: the settings do not ask for it.
	Open func(b *wiring.Base, s Settings, k KafkaSettings) (Transport, error)
}

var links []Link

// Register makes a transport known; its package calls it when it is linked.
func Register(l Link) { links = append(links, l) }

// Validate judges the settings of the transports that the program links.
func Validate(s Settings, k KafkaSettings) error {
	var errs []error
	for _, l := range links {
		errs = append(errs, l.Validate(s, k))
	}
	return errors.Join(errs...)
}

// Set holds the open transports by their kind.
type Set map[string]Transport

// Open opens the transports that the program links and the settings ask for; that of INGEST_QUEUE is among them.
func Open(b *wiring.Base, s Settings, k KafkaSettings) (Set, error) {
	if !slices.ContainsFunc(links, func(l Link) bool { return l.Kind == s.Kind }) {
		return nil, process.BadSetting("INGEST_QUEUE", "is %s: %s does not carry it", s.Kind, b.Env.Name)
	}
	set := Set{}
	for _, l := range links {
		t, err := l.Open(b, s, k)
		if err != nil {
			return nil, err
		}
		if t != nil {
			set[l.Kind] = t
		}
	}
	return set, nil
}
