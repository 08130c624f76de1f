package suite

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/split"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// maxMS bounds every setting in milliseconds: a year.
const maxMS = 365 * 24 * 3600 * 1000

// Store says where tasks and documents are kept. One of the two is set.
type Store struct {
	MySQLDSN    process.DSN `envconfig:"MYSQL_DSN" desc:"MySQL or MariaDB in the Go driver's form, user:password@tcp(host:3306)/name"`
	DatabaseURL process.DSN `envconfig:"DATABASE_URL" desc:"mysql://, postgres:// or sqlite:PATH; wins over MYSQL_DSN"`
	AllowUnsafe bool        `envconfig:"ALLOW_UNSAFE_DURABILITY" default:"false" desc:"use a database whose own crash loses accepted uploads (flush at commit off); otherwise it is refused"`
}

// Queue says which queue carries deliveries and how.
type Queue struct {
	Kind       string      `envconfig:"INGEST_QUEUE" default:"redis" allowed:"redis|kafka" desc:"which queue carries deliveries"`
	RedisURL   process.DSN `envconfig:"REDIS_URL" desc:"redis://, rediss://, redis-sentinel://host:port,…/master or redis-cluster://host:port,…; not needed with INGEST_QUEUE=kafka"`
	Partitions int         `envconfig:"INGEST_STREAM_PARTITIONS" default:"1" allowed:"1..1024" desc:"1: one stream; more: the partitions of topic ingest-tasks, in which the versions of one document stay in order (they only grow; set it alike everywhere)"`
	StreamKey  string      `envconfig:"INGEST_STREAM_KEY" default:"ingest:tasks" desc:"stream of deliveries"`
	Group      string      `envconfig:"INGEST_STREAM_GROUP" default:"ingest-workers" desc:"consumer group of the workers"`
	DLQKey     string      `envconfig:"INGEST_REDIS_DLQ_STREAM_KEY" default:"ingest:tasks:dlq" desc:"dead letter stream; set but empty: off"`
}

// Tasks holds the rules of attempts, leases and promises.
type Tasks struct {
	MaxAttempts int    `envconfig:"INGEST_REDIS_MAX_ATTEMPTS" default:"10" allowed:"1..1000" desc:"failed attempts after which a task is DEAD"`
	BaseMS      int    `envconfig:"INGEST_REDIS_RETRY_BASE_BACKOFF_MS" default:"1000" allowed:"0..31536000000" desc:"wait after the first failure; doubled after each"`
	MaxMS       int    `envconfig:"INGEST_REDIS_RETRY_MAX_BACKOFF_MS" default:"600000" allowed:"0..31536000000" desc:"longest wait after a failure"`
	Jitter      string `envconfig:"INGEST_REDIS_RETRY_JITTER" default:"off" allowed:"off|on" desc:"shorten waits at random by up to a half"`
	LeaseMS     int    `envconfig:"INGEST_LEASE_MS" default:"30000" allowed:"500..3600000" desc:"how long a claim holds without a heartbeat"`
	MaxCrashes  int    `envconfig:"INGEST_MAX_CRASHES" default:"3" allowed:"2..1000000" desc:"takeovers after which a task is DEAD"`
	SlackMS     int    `envconfig:"INGEST_PROMISE_SLACK_MS" default:"2000" allowed:"100..3600000" desc:"how long a delivery may take from the commit into the stream before it counts as lost"`
	MaxBacklog  int    `envconfig:"INGEST_MAX_BACKLOG" default:"0" allowed:"0.." desc:"most tasks waiting before uploads are refused with 503; 0: no limit"`
}

// Policy is the state machine's view of the settings.
func (t Tasks) Policy(dlq bool) taskstate.Policy {
	p := taskstate.Policy{
		BaseBackoff: ms(t.BaseMS), MaxBackoff: ms(t.MaxMS), Lease: ms(t.LeaseMS),
		MaxCrashes: t.MaxCrashes, Slack: ms(t.SlackMS), DLQ: dlq,
	}
	if t.Jitter == "on" {
		p.Jitter = halfJitter
	}
	return p
}

// Work says how a process runs tasks and what it sweeps.
type Work struct {
	Concurrency    int    `envconfig:"INGEST_WORKER_CONCURRENCY" default:"64" allowed:"1..4096" desc:"tasks that run at once"`
	Recovery       bool   `envconfig:"INGEST_WORKER_RECOVERY" default:"true" desc:"workers also run due retries and takeovers (a reclaimer always does)"`
	SweepMS        int    `envconfig:"INGEST_SWEEP_INTERVAL_MS" default:"2000" allowed:"50..3600000" desc:"pause between two sweeps for lost deliveries"`
	ReclaimEnabled bool   `envconfig:"INGEST_REDIS_RECLAIM_ENABLED" default:"true" desc:"settle deliveries that were read and never acknowledged"`
	ReclaimMS      int    `envconfig:"INGEST_REDIS_RECLAIM_INTERVAL_MS" default:"5000" allowed:"50..31536000000" desc:"pause between two settlings"`
	ReclaimIdleMS  int    `envconfig:"INGEST_REDIS_RECLAIM_IDLE_MS" default:"600000" allowed:"0..31536000000" desc:"how long a delivery is left alone before it is settled"`
	ReclaimBatch   int    `envconfig:"INGEST_REDIS_RECLAIM_BATCH_SIZE" default:"20" allowed:"1..10000" desc:"deliveries of one settling command"`
	PinMaxMS       int    `envconfig:"INGEST_STREAM_PIN_MAX_MS" default:"900000" allowed:"1000..31536000000" desc:"how long a waiting retry may hold the stream's trimming back"`
	StallMS        string `envconfig:"INGEST_STAGE_STALL_MS" default:"none=300000" desc:"how long a stage may stand still: one number, or stage=ms,… (none: all others)"`
	ZombieMax      int    `envconfig:"ZOMBIE_MAX_PENDING" default:"0" allowed:"0..1000" desc:"pending deliveries that a removed consumer may have; they are moved, never lost"`
	ZombieIdleMS   int    `envconfig:"ZOMBIE_MIN_IDLE_MS" default:"259200000" allowed:"0..31536000000" desc:"idle time after which a consumer without heartbeat is removed"`
	ZombieMS       int    `envconfig:"ZOMBIE_INTERVAL_MS" default:"600000" allowed:"1000..31536000000" desc:"pause between two looks for such consumers"`
	ZombieDryRun   bool   `envconfig:"ZOMBIE_DRY_RUN" default:"false" desc:"only log which consumers would be removed"`
	StopGraceMS    int    `envconfig:"INGEST_STOP_GRACE_MS" default:"10000" allowed:"0..3600000" desc:"how long running tasks may still end at a stop"`
	CheckMS        int    `envconfig:"INGEST_CHECK_INTERVAL_MS" default:"60000" allowed:"0..86400000" desc:"pause between two checks of a sample of the log by the reclaimer; 0: off"`
}

// stalls reads INGEST_STAGE_STALL_MS.
func (w Work) stalls() (map[taskstate.Stage]time.Duration, error) {
	known := map[taskstate.Stage]bool{}
	for _, s := range append(ingest.Describe().Stages, taskstate.StageNone, taskstate.StageRun) {
		known[s] = true
	}
	out := map[taskstate.Stage]time.Duration{}
	for _, part := range strings.Split(w.StallMS, ",") {
		stage, text, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			stage, text = string(taskstate.StageNone), stage
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxMS || !known[taskstate.Stage(stage)] {
			return nil, process.BadSetting("INGEST_STAGE_STALL_MS", "%q: allowed is a number of milliseconds 1..%d, or stage=ms with the stages none, extract, split, embed, index, switch, run", part, maxMS)
		}
		out[taskstate.Stage(stage)] = ms(n)
	}
	return out, nil
}

// runner is the runner's configuration; main says whether it takes new deliveries.
func (w Work) runner(name string, p taskstate.Policy, main bool) (taskrun.Config, error) {
	stalls, err := w.stalls()
	if err != nil {
		return taskrun.Config{}, err
	}
	c := taskrun.NewDefaultConfig()
	c.Process, c.Concurrency, c.Policy, c.StallLimit = name, w.Concurrency, p, stalls
	c.MainLoop, c.Recovery = main, w.Recovery || !main
	c.SweepInterval, c.PinMax, c.StopGrace = ms(w.SweepMS), ms(w.PinMaxMS), ms(w.StopGraceMS)
	c.Reconcile = taskrun.Reconcile{Enabled: w.ReclaimEnabled, Interval: ms(w.ReclaimMS), Idle: ms(w.ReclaimIdleMS), Batch: w.ReclaimBatch}
	return c, nil
}

// Uploads says where files are.
type Uploads struct {
	Dir string `envconfig:"UPLOAD_DIR" default:"./data/uploads" desc:"folder of the uploaded files; shared by all services"`
}

// Content says how text is made of files.
type Content struct {
	Extract extract.Config // EXTRACT_*
	Split   split.Config   // CHUNK_*
}

// Vectors says where vectors are kept.
type Vectors struct {
	Kind     string         `envconfig:"VECTOR_STORE" default:"chroma" allowed:"embedded|chroma" desc:"where vectors are kept; embedded serves one process"`
	Dir      string         `envconfig:"VECTOR_DIR" default:"./data/vectors" desc:"folder of the embedded store"`
	MaxBytes int64          `envconfig:"VECTOR_MAX_BYTES" default:"1073741824" allowed:"16777216.." desc:"most memory of the embedded store, bytes"`
	URL      process.DSN    `envconfig:"CHROMA_BASE_URL" desc:"Chroma 1.5.9 or later, http://host:8000"`
	Tenant   string         `envconfig:"CHROMA_TENANT" default:"default_tenant" desc:"Chroma tenant"`
	Database string         `envconfig:"CHROMA_DATABASE" default:"default_database" desc:"Chroma database"`
	Token    process.Secret `envconfig:"CHROMA_TOKEN" desc:"sent as Bearer and x-chroma-token"`
	Timeout  time.Duration  `envconfig:"CHROMA_TIMEOUT" default:"1m" allowed:"30s..1h" desc:"longest time of one request"`
}

// Embedding says who makes vectors.
type Embedding struct {
	URL        process.DSN    `envconfig:"EMBEDDING_BASE_URL" desc:"OpenAI-compatible, TEI or Ollama service; not set: the built-in lexical embedder"`
	API        string         `envconfig:"EMBEDDING_API" default:"auto" allowed:"auto|openai|tei|ollama" desc:"the service's way of speaking"`
	Model      string         `envconfig:"EMBEDDING_MODEL" desc:"model name; also the identity of its vectors"`
	Key        process.Secret `envconfig:"EMBEDDING_API_KEY" desc:"sent as a Bearer token"`
	BatchSize  int            `envconfig:"EMBEDDING_BATCH_SIZE" default:"64" allowed:"1..2048" desc:"most texts of one request"`
	Dimensions int            `envconfig:"EMBEDDING_DIMENSIONS" default:"0" allowed:"0..16384" desc:"dimensions to ask for; 0: the model's own"`
	Timeout    time.Duration  `envconfig:"EMBEDDING_TIMEOUT" default:"2m" allowed:"1s..1h" desc:"longest time of one request"`
}

// Shared are the settings of every service.
type Shared struct {
	Store     Store
	Queue     Queue
	Kafka     Kafka
	Tasks     Tasks
	Uploads   Uploads
	Vectors   Vectors
	Embedding Embedding
}

// Validate names all that a service needs and does not have (design D16).
func (s Shared) Validate() error {
	var kafka error
	if s.Queue.Kind == QueueKafka {
		kafka = s.Kafka.Validate()
	}
	return errors.Join(s.Store.validate(), s.Queue.validate(), kafka, s.Vectors.validate(), s.Tasks.Policy(true).Validate())
}

// policy is the state machine's view of the settings.
func (s Shared) policy() taskstate.Policy { return s.Tasks.Policy(s.Queue.owes()) }

// Worker are the settings of stream-worker, kafka-consumer and reclaimer.
type Worker struct {
	Shared  Shared
	Work    Work
	Content Content
}

// Validate joins the problems of all parts.
func (w *Worker) Validate() error {
	_, stallErr := w.Work.stalls()
	return errors.Join(w.Shared.Validate(), w.Content.Extract.Validate(), w.Content.Split.Validate(), stallErr)
}

// config is the store's view of the settings; DATABASE_URL wins, so that one variable moves a service to another database.
func (s Store) config() taskstore.Config {
	cfg := taskstore.Config{MySQLDSN: s.MySQLDSN.Reveal(), DatabaseURL: s.DatabaseURL.Reveal(), AllowUnsafe: s.AllowUnsafe}
	if cfg.DatabaseURL != "" {
		cfg.MySQLDSN = ""
	}
	return cfg
}

// validate says that a database is needed, and that its address can be one.
func (s Store) validate() error {
	if s.MySQLDSN.Empty() && s.DatabaseURL.Empty() {
		return process.BadSetting("MYSQL_DSN", "is not set, nor is DATABASE_URL: this service keeps its tasks in a database")
	}
	return s.config().Validate()
}

// owes tells whether DEAD rows owe an entry of the dead letter stream; on the Kafka transport an event is written with them.
func (q Queue) owes() bool { return q.Kind == QueueRedis && q.DLQKey != "" }

// validate says that Redis is needed, and that its address, stream and group can be ones.
func (q Queue) validate() error {
	if q.Kind == QueueKafka && q.RedisURL.Empty() {
		return nil
	}
	if q.RedisURL.Empty() {
		return process.BadSetting("REDIS_URL", "is not set: INGEST_QUEUE=redis carries deliveries over Redis Streams")
	}
	if q.partitioned() {
		return streamConfig(q, queueConfig(q)).Validate()
	}
	return queueConfig(q).Validate()
}

// validate says that Chroma is needed unless vectors are embedded.
func (v Vectors) validate() error {
	if v.Kind == "chroma" && v.URL.Empty() {
		return process.BadSetting("CHROMA_BASE_URL", "is not set: VECTOR_STORE=chroma keeps vectors there")
	}
	return nil
}

// ms turns a setting in milliseconds into a duration.
func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// describe names an embedder's origin for the start line.
func (e Embedding) describe() string {
	if e.URL.Empty() {
		return "built-in lexical embedder (finds words, not meaning)"
	}
	return fmt.Sprintf("%s model %s", e.URL, e.Model)
}
