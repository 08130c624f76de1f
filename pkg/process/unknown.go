package process

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// ownPrefixes are of names that nobody else gives to variables: one that is not a setting is a mistake.
var ownPrefixes = []string{
	"INGEST_", "UPLOAD_", "EXTRACT_", "CHUNK_", "EMBEDDING_", "OUTBOX_", "ZOMBIE_", "MILLWEIR_", "OPERATOR_", "VECTOR_",
}

// KnownSettings are the settings of all services: they share one environment,
// so a service does not call strange what another one reads.
// The archtest compares this list with the envconfig tags of all packages.
var KnownSettings = strings.Fields(`
ALLOW_UNSAFE_DURABILITY AUTH_FAIL_LIMIT AUTH_FAIL_WINDOW_SECONDS AUTH_MODE CHROMA_BASE_URL CHROMA_DATABASE
CHROMA_TENANT CHROMA_TIMEOUT CHROMA_TOKEN CHUNK_MODE CHUNK_OVERLAP CHUNK_SIZE CHUNK_STRATEGY DATABASE_URL
EMBEDDING_API EMBEDDING_API_KEY EMBEDDING_BASE_URL EMBEDDING_BATCH_SIZE EMBEDDING_DIMENSIONS
EMBEDDING_MAX_TOKENS EMBEDDING_MODEL EMBEDDING_PREVIOUS_API EMBEDDING_PREVIOUS_API_KEY EMBEDDING_PREVIOUS_BASE_URL
EMBEDDING_PREVIOUS_DIMENSIONS EMBEDDING_PREVIOUS_MODEL EMBEDDING_PRICE EMBEDDING_REQUESTS_PER_MINUTE EMBEDDING_TIMEOUT
EMBEDDING_TOKENS_PER_MINUTE EVENTS_MAX_CLIENTS
EVENTS_MAX_CLIENTS_PER_USER EXTRACT_API_KEY EXTRACT_CACHE_DIR EXTRACT_CHILD_FILES EXTRACT_COMMENTS
EXTRACT_HEADERS EXTRACT_HIDDEN_SHEETS EXTRACT_IDLE_TIMEOUT EXTRACT_KIND EXTRACT_MAX_PAGES
EXTRACT_MAX_TEXT_BYTES EXTRACT_MEMORY_MB EXTRACT_OCR EXTRACT_OCR_LANGUAGES EXTRACT_PARALLEL EXTRACT_SANDBOX
EXTRACT_TIMEOUT_LARGE EXTRACT_TIMEOUT_MEDIUM EXTRACT_TIMEOUT_SMALL EXTRACT_TYPES EXTRACT_URL HTTP_ADDR
INGEST_CHECK_INTERVAL_MS INGEST_KAFKA_GROUP INGEST_KAFKA_MAX_ATTEMPTS INGEST_KAFKA_PUBLISH_BATCH_SIZE
INGEST_KAFKA_PUBLISH_INTERVAL_MS INGEST_KAFKA_RETRY_BASE_BACKOFF_MS INGEST_KAFKA_RETRY_MAX_BACKOFF_MS
INGEST_KAFKA_TOPIC INGEST_LEASE_MS INGEST_MAX_BACKLOG INGEST_MAX_CRASHES INGEST_PROMISE_SLACK_MS INGEST_QUEUE
INGEST_REDIS_DLQ_STREAM_KEY INGEST_REDIS_MAX_ATTEMPTS INGEST_REDIS_RECLAIM_BATCH_SIZE
INGEST_REDIS_RECLAIM_ENABLED INGEST_REDIS_RECLAIM_IDLE_MS INGEST_REDIS_RECLAIM_INTERVAL_MS
INGEST_REDIS_RETRY_BASE_BACKOFF_MS INGEST_REDIS_RETRY_JITTER INGEST_REDIS_RETRY_MAX_BACKOFF_MS
INGEST_STAGE_STALL_MS INGEST_STOP_GRACE_MS INGEST_STREAM_GROUP INGEST_STREAM_KEY INGEST_STREAM_PARTITIONS
INGEST_STREAM_PIN_MAX_MS INGEST_SWEEP_INTERVAL_MS INGEST_URL_NETWORKS INGEST_WORKER_CONCURRENCY INGEST_WORKER_RECOVERY JWKS_URL
JWT_AUDIENCE JWT_ISSUER JWT_SECRET KAFKA_BOOTSTRAP_SERVERS KAFKA_SASL_MECHANISM KAFKA_SASL_PASSWORD
KAFKA_SASL_USER KAFKA_TLS LOG_FORMAT LOG_LEVEL METRICS_PUBLIC MILLWEIR_API_KEY MILLWEIR_CACHE
MILLWEIR_CHROMA_PORT MILLWEIR_KAFKA_PORT MILLWEIR_MARIADB_PORT MILLWEIR_POSTGRES_PORT MILLWEIR_RABBITMQ_PORT
MILLWEIR_REDIS_PORT MILLWEIR_SERVER MYSQL_DSN OIDC_CLIENT_ID OIDC_CLIENT_SECRET OIDC_ISSUER OIDC_REDIRECT_URL OPERATOR_ADDR OTEL_UI_URL OUTBOX_RETENTION_HOURS PDF_ENGINE PDF_LIBRARY PDF_READER PGVECTOR_TIMEOUT PGVECTOR_URL QDRANT_API_KEY QDRANT_TIMEOUT QDRANT_URL RABBITMQ_AUDIT_DAYS RABBITMQ_AUDIT_STREAM RABBITMQ_DELIVERY_LIMIT
RABBITMQ_DLX RABBITMQ_EXCHANGE RABBITMQ_METRICS_URLS RABBITMQ_PREFETCH RABBITMQ_PUBLISH_RETRIES RABBITMQ_PUBLISH_TIMEOUT_MS
RABBITMQ_QUEUE RABBITMQ_QUEUE_MAX_LENGTH RABBITMQ_QUEUE_OVERFLOW RABBITMQ_ROUTING_KEY RABBITMQ_URL RABBITMQ_VHOST REDIS_URL RERANK_API
RERANK_API_KEY RERANK_BASE_URL RERANK_MODEL RERANK_TIMEOUT RERANK_TOP_N SEARCH_TEXT_WEIGHT SHUTDOWN_GRACE
STREAM_WORKER_ROADS TASK_STREAM_KEY TASK_STREAM_MAXLEN
TELEGRAM_API_URL TELEGRAM_BOT_TOKEN TELEGRAM_CHATS TELEGRAM_WEBHOOK_ADDR TELEGRAM_WEBHOOK_SECRET
TELEGRAM_WEBHOOK_URL TRUSTED_PROXIES
UPLOAD_DIR UPLOAD_IDLE_TIMEOUT UPLOAD_MAX_BYTES UPLOAD_MAX_BYTES_PER_USER UPLOAD_MAX_DURATION
UPLOAD_MAX_OPEN_PER_USER UPLOAD_MAX_REQUEST_BYTES UPLOAD_MIN_BYTES_PER_SECOND UPLOAD_RATE_LIMIT
UPLOAD_RATE_WINDOW_SECONDS VECTOR_DIR VECTOR_MAX_BYTES VECTOR_STORE WORKFLOWS_FILE ZOMBIE_DRY_RUN ZOMBIE_INTERVAL_MS
ZOMBIE_MAX_PENDING ZOMBIE_MIN_IDLE_MS
`)

// kubernetesLinks are what Kubernetes and old Docker put into every container for a service called redis or chroma.
var kubernetesLinks = regexp.MustCompile(`_SERVICE_(HOST|PORT(_.*)?)$|_PORT(_\d+_(TCP|UDP)(_.*)?)?$`)

const (
	closeOwn     = 6 // how far a suggestion may lie for a name with our prefix
	closeForeign = 2 // and how near another name must be to be taken for a slip
	shortName    = 7 // shorter names are near to everything
)

// UnknownVariables returns one line for each variable of environ ("NAME=value") that looks like a setting and is none:
// it has a prefix of ours, or is one slip away from a setting's name. Values are never in it.
func UnknownVariables(environ []string, configs ...any) []string {
	known := map[string]bool{}
	for _, n := range KnownSettings {
		known[n] = true
	}
	for _, s := range allSettings(configs) {
		known[s.name] = true
	}
	var lines []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if known[name] || known[strings.TrimSuffix(name, "_FILE")] || kubernetesLinks.MatchString(name) {
			continue
		}
		near, distance := nearest(name, known)
		switch own := slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }); {
		case own && distance <= closeOwn, distance <= closeForeign && len(name) >= shortName && sharesEnd(name, near):
			lines = append(lines, fmt.Sprintf("%s is not a setting: did you mean %s?", name, near))
		case own:
			lines = append(lines, fmt.Sprintf("%s is not a setting (see --help-env)", name))
		}
	}
	slices.Sort(lines)
	return lines
}

// sharesEnd asks a foreign name for the same first or last word, so that e.g. HTTP_ADDR and HTTPS_ADDR meet
// and two short unrelated names do not.
func sharesEnd(a, b string) bool {
	first := func(s string) string { w, _, _ := strings.Cut(s, "_"); return w }
	last := func(s string) string { return s[strings.LastIndexByte(s, '_')+1:] }
	return first(a) == first(b) || last(a) == last(b)
}

func nearest(name string, known map[string]bool) (best string, distance int) {
	distance = 1 << 30
	for k := range known {
		if d := levenshtein.ComputeDistance(name, k); d < distance || d == distance && k < best {
			best, distance = k, d
		}
	}
	return best, distance
}
