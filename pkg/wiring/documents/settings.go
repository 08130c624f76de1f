package documents

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/vector/pgvector"
	"github.com/millweir/millweir/pkg/ingest/vector/qdrant"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/queue"
	"github.com/millweir/millweir/pkg/workflow"
)

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
		BaseBackoff: wiring.MS(t.BaseMS), MaxBackoff: wiring.MS(t.MaxMS), Lease: wiring.MS(t.LeaseMS),
		MaxCrashes: t.MaxCrashes, Slack: wiring.MS(t.SlackMS), DLQ: dlq,
	}
	if t.Jitter == "on" {
		p.Jitter = func() float64 { return mathrand.Float64() / 2 }
	}
	return p
}

// Uploads says where files are.
type Uploads struct {
	Dir string `envconfig:"UPLOAD_DIR" default:"./data/uploads" desc:"folder of the uploaded files; shared by all services"`
}

// Vectors says where vectors are kept.
type Vectors struct {
	Kind     string         `envconfig:"VECTOR_STORE" default:"chroma" allowed:"embedded|chroma|pgvector|qdrant" desc:"where vectors are kept; embedded serves one process"`
	Dir      string         `envconfig:"VECTOR_DIR" default:"./data/vectors" desc:"folder of the embedded store"`
	MaxBytes int64          `envconfig:"VECTOR_MAX_BYTES" default:"1073741824" allowed:"16777216.." desc:"most memory of the embedded store, bytes"`
	URL      process.DSN    `envconfig:"CHROMA_BASE_URL" desc:"Chroma 1.5.9 or later, http://host:8000"`
	Tenant   string         `envconfig:"CHROMA_TENANT" default:"default_tenant" desc:"Chroma tenant"`
	Database string         `envconfig:"CHROMA_DATABASE" default:"default_database" desc:"Chroma database"`
	Token    process.Secret `envconfig:"CHROMA_TOKEN" desc:"sent as Bearer and x-chroma-token"`
	Timeout  time.Duration  `envconfig:"CHROMA_TIMEOUT" default:"1m" allowed:"30s..1h" desc:"longest time of one request"`

	Postgres        process.DSN   `envconfig:"PGVECTOR_URL" desc:"Postgres with pgvector 0.8 or later, postgres://user:password@host:5432/database; not set: DATABASE_URL when that is Postgres"`
	PostgresTimeout time.Duration `envconfig:"PGVECTOR_TIMEOUT" default:"1m" allowed:"1s..1h" desc:"longest time of one statement"`

	Qdrant        process.DSN    `envconfig:"QDRANT_URL" desc:"Qdrant 1.10 or later, its REST API, http://host:6333"`
	QdrantKey     process.Secret `envconfig:"QDRANT_API_KEY" desc:"sent as api-key; it must be allowed to make, write and drop collections"`
	QdrantTimeout time.Duration  `envconfig:"QDRANT_TIMEOUT" default:"1m" allowed:"1s..1h" desc:"longest time of one request"`
}

// In returns the settings with the address of pgvector: without one of its own it lies in the installation's database, if that is
// Postgres.
func (v Vectors) In(db database.Settings) Vectors {
	address := db.DatabaseURL.Reveal()
	if v.Postgres.Empty() && (strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://")) {
		v.Postgres = db.DatabaseURL
	}
	return v
}

// pgvector is the store's view of the settings.
func (v Vectors) pgvector() pgvector.Config {
	return pgvector.Config{URL: v.Postgres.Reveal(), Timeout: v.PostgresTimeout}
}

// qdrant is the store's view of the settings.
func (v Vectors) qdrant() qdrant.Config {
	return qdrant.Config{URL: v.Qdrant.Reveal(), APIKey: v.QdrantKey.Reveal(), Timeout: v.QdrantTimeout}
}

// Missing is the setting without which there is no vector store; empty: none is missing.
func (v Vectors) Missing() string {
	switch {
	case v.Kind == "chroma" && v.URL.Empty():
		return "CHROMA_BASE_URL"
	case v.Kind == "pgvector" && v.Postgres.Empty():
		return "PGVECTOR_URL"
	case v.Kind == "qdrant" && v.Qdrant.Empty():
		return "QDRANT_URL"
	}
	return ""
}

// Embedding says who makes vectors.
type Embedding struct {
	URL        process.DSN    `envconfig:"EMBEDDING_BASE_URL" desc:"embedding service, https://api.openai.com/v1; not set: the built-in lexical embedder"`
	API        string         `envconfig:"EMBEDDING_API" default:"auto" allowed:"auto|openai|tei|ollama|azure|cohere|voyage|jina" desc:"the service's way of speaking; auto: by the address, else by asking"`
	Model      string         `envconfig:"EMBEDDING_MODEL" desc:"model name; also the identity of its vectors"`
	Key        process.Secret `envconfig:"EMBEDDING_API_KEY" desc:"sent as a Bearer token"`
	BatchSize  int            `envconfig:"EMBEDDING_BATCH_SIZE" default:"64" allowed:"1..2048" desc:"most texts of one request"`
	Dimensions int            `envconfig:"EMBEDDING_DIMENSIONS" default:"0" allowed:"0..16384" desc:"dimensions to ask for; 0: the model's own"`
	MaxTokens  int            `envconfig:"EMBEDDING_MAX_TOKENS" default:"0" allowed:"0..1000000" desc:"longest text that the model takes, in tokens of cl100k_base; no segment is larger; 0: not known"`
	Price      float64        `envconfig:"EMBEDDING_PRICE" default:"0" allowed:"0.." desc:"what a million tokens cost, in any currency; previews show the cost then"`
	Timeout    time.Duration  `envconfig:"EMBEDDING_TIMEOUT" default:"2m" allowed:"1s..1h" desc:"longest time of one request, and of a wait for the budget before it"`
	// The model before, of which there are knowledge bases yet.
	PreviousURL        process.DSN    `envconfig:"EMBEDDING_PREVIOUS_BASE_URL" desc:"as EMBEDDING_BASE_URL was before the model was changed: knowledge bases that were made with it are searched and added to with it until they are re-indexed; not set: none"`
	PreviousAPI        string         `envconfig:"EMBEDDING_PREVIOUS_API" default:"auto" allowed:"auto|openai|tei|ollama|azure|cohere|voyage|jina" desc:"likewise"`
	PreviousModel      string         `envconfig:"EMBEDDING_PREVIOUS_MODEL" desc:"likewise"`
	PreviousKey        process.Secret `envconfig:"EMBEDDING_PREVIOUS_API_KEY" desc:"likewise"`
	PreviousDimensions int            `envconfig:"EMBEDDING_PREVIOUS_DIMENSIONS" default:"0" allowed:"0..16384" desc:"likewise"`

	Requests int `envconfig:"EMBEDDING_REQUESTS_PER_MINUTE" default:"0" allowed:"0..60000000" desc:"most requests a minute to a model (the one before has as many of its own), of all processes with the same REDIS_URL; 0: no limit"`
	Tokens   int `envconfig:"EMBEDDING_TOKENS_PER_MINUTE" default:"0" allowed:"0..60000000" desc:"most tokens a minute, likewise; 0: no limit"`
}

// Workflows says which workflows there are beside the built-in ones, and from where ingest.url fetches.
type Workflows struct {
	File     string `envconfig:"WORKFLOWS_FILE" desc:"YAML file of more workflows, each done by an HTTP service; not set: none"`
	Networks string `envconfig:"INGEST_URL_NETWORKS" desc:"networks that ingest.url may fetch from although they are not public, CIDR with commas; not set: none"`
}

// Validate reads both.
func (w Workflows) Validate() error {
	var errs []error
	if _, err := workflow.Load(w.File); err != nil {
		errs = append(errs, process.BadSetting("WORKFLOWS_FILE", "%s: %s", w.File, err))
	}
	if _, err := workflows.ParseNetworks(w.Networks); err != nil {
		errs = append(errs, process.BadSetting("INGEST_URL_NETWORKS", "%s", err))
	}
	return errors.Join(errs...)
}

// Validate says that the server of the vector store is needed unless vectors are embedded.
func (v Vectors) Validate() error {
	switch missing := v.Missing(); {
	case v.Kind == "pgvector" && missing != "":
		return process.BadSetting(missing, "is not set, nor is DATABASE_URL a Postgres: VECTOR_STORE=pgvector keeps vectors there")
	case missing != "":
		return process.BadSetting(missing, "is not set: VECTOR_STORE=%s keeps vectors there", v.Kind)
	}
	return nil
}

// describe names an embedder's origin for the start line.
func (e Embedding) describe() string {
	if e.URL.Empty() {
		return "built-in lexical embedder (finds words, not meaning)"
	}
	return fmt.Sprintf("%s model %s", e.URL, e.Model)
}

// Shared are the settings of every service that works on documents.
type Shared struct {
	Store     database.Settings
	Queue     queue.Settings
	Kafka     queue.KafkaSettings
	Tasks     Tasks
	Uploads   Uploads
	Accept    detect.Config
	Vectors   Vectors
	Embedding Embedding
	Workflows Workflows
}

// Validate names all that a service needs and does not have (design D16).
func (s Shared) Validate() error {
	return errors.Join(s.Store.Validate(), queue.Validate(s.Queue, s.Kafka), s.Vectors.In(s.Store).Validate(), s.Workflows.Validate(), s.Accept.Validate(), s.Tasks.Policy(true).Validate())
}

// Policy is the state machine's view of the settings.
func (s Shared) Policy() taskstate.Policy { return s.Tasks.Policy(s.Queue.Owes()) }
