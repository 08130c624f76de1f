package archtest

import "strings"

// prefix is the path of all our modules.
const prefix = "github.com/millweir/millweir/"

// room is a package (or, with /... at the end, all below it too) and what it may import of ours.
// The longest room that fits a package counts.
type room struct {
	path    string
	imports []string
}

// rooms is the whole house. Arrows point downwards: adapters import their port, roots never their adapters,
// services everything but each other; wiring puts parts together for the services.
var rooms = []room{
	// ground: nothing of ours
	{"proto", nil},
	{"migrations", nil},
	{"pkg/taskstate", nil},
	{"pkg/streammq/...", []string{"pkg/streammq/..."}},
	{"pkg/telemetry", nil},
	{"pkg/telemetry/mq", []string{"pkg/streammq", "pkg/telemetry"}}, // streammq's observers
	{"pkg/labserver", []string{"pkg/pause", "pkg/labserver/child", "pkg/labserver/installed"}},
	{"pkg/labserver/child", []string{"pkg/pause", "pkg/labserver/installed"}},
	{"pkg/labserver/commitproxy", nil},
	{"pkg/labserver/installed", nil},
	{"pkg/archtest", nil},
	{"pkg/process", []string{"pkg/telemetry"}},
	{"pkg/crash", nil},
	{"pkg/wire", []string{"pkg/taskstate"}}, // the JSON types of the API
	{"pkg/batcher", nil},                    // natural batches
	{"pkg/pause", nil},
	{"pkg/telegramtest", []string{"pkg/pause"}}, // a Bot API

	// the state of tasks and its stores
	{"pkg/taskstate/history", []string{"pkg/taskstate"}},                                                       // the rules that a log must keep
	{"pkg/taskstate/spec/search", nil},                                                                         // walks the states of the models
	{"pkg/taskstate/spec", []string{"pkg/taskstate", "pkg/taskstate/history", "pkg/taskstate/spec/search"}},    // the model
	{"pkg/taskstate/spec/kafka", []string{"pkg/taskstate", "pkg/taskstate/spec", "pkg/taskstate/spec/search"}}, // the same of the other transport
	{"pkg/taskstate/taskstatetest", []string{"pkg/taskstate"}},
	{"pkg/sqldb", []string{"pkg/pause", "pkg/taskstate", "pkg/crash", "migrations"}},
	{"pkg/sqldb/mysql", []string{"pkg/sqldb"}},
	{"pkg/sqldb/postgres", []string{"pkg/sqldb"}},
	{"pkg/sqldb/sqlite", []string{"pkg/sqldb", "pkg/taskstate"}},
	{"pkg/taskstore", []string{"pkg/taskstate", "pkg/taskstore/internal/...", "pkg/crash", "pkg/sqldb", "migrations"}}, // opens the dialects that the program links
	{"pkg/taskstore/internal/call", []string{"pkg/taskstate", "pkg/taskstore/internal/statement", "pkg/sqldb"}},
	{"pkg/taskstore/internal/statement", []string{"pkg/taskstate", "pkg/sqldb"}},
	{"pkg/taskstore/taskstoretest", []string{"pkg/taskstate", "pkg/taskstore", "pkg/sqldb/sqlite"}}, // databases for tests
	{"pkg/sqldb/dialects", []string{"pkg/sqldb/mysql", "pkg/sqldb/postgres", "pkg/sqldb/sqlite"}},   // all of them

	// queues
	{"pkg/ingestq", []string{"proto", "pkg/taskstate"}},
	{"pkg/ingestq/ingestqtest", []string{"proto", "pkg/ingestq"}},
	{"pkg/redisclient", []string{"pkg/streammq/stream"}},
	{"pkg/ingestq/memq", []string{"proto", "pkg/ingestq"}},
	{"pkg/ingestq/jointq", []string{"proto", "pkg/ingestq"}},
	{"pkg/ingestq/redisq", []string{"proto", "pkg/ingestq", "pkg/redisclient", "pkg/streammq/stream", "pkg/telemetry", "pkg/crash"}},
	{"pkg/ingestq/streamq", []string{"proto", "pkg/ingestq", "pkg/ingestq/redisq", "pkg/streammq/..."}},
	{"pkg/ingestq/kafkaq", []string{"pkg/pause", "proto", "pkg/ingestq", "pkg/outbox", "pkg/telemetry"}},
	{"pkg/ingestq/kafkaq/embedded", nil},
	{"pkg/ingestq/redisq/embedded", []string{"proto", "pkg/ingestq", "pkg/ingestq/redisq"}},
	{"pkg/outbox", []string{"pkg/pause", "proto", "pkg/taskstate", "pkg/ingestq", "pkg/sqldb", "pkg/crash", "pkg/telemetry"}},
	{"pkg/taskrun", []string{"pkg/pause", "pkg/taskstate", "pkg/ingestq", "pkg/taskrun/internal/...", "pkg/telemetry", "pkg/crash"}},
	{"pkg/taskrun/internal/delivery", []string{"pkg/pause", "proto", "pkg/taskstate", "pkg/ingestq", "pkg/taskrun/internal/local", "pkg/telemetry", "pkg/crash"}},
	{"pkg/taskrun/internal/local", []string{"pkg/pause", "pkg/taskstate", "pkg/ingestq", "pkg/telemetry"}},
	{"pkg/mirror", []string{"pkg/crash", "pkg/pause", "proto", "pkg/taskstate", "pkg/ingestq", "pkg/sqldb", "pkg/telemetry", "pkg/wire"}},
	{"pkg/tasks", []string{"pkg/batcher", "pkg/crash", "pkg/ingestq", "pkg/outbox", "pkg/sqldb", "pkg/taskrun", "pkg/taskstate"}},
	{"pkg/tasks/filter", []string{"pkg/taskstate"}}, // the expressions of lists and bulk operations
	{"pkg/tasks/views", []string{"pkg/sqldb", "pkg/tasks", "pkg/taskstate"}},
	{"pkg/tasks/bulk", []string{"pkg/pause", "pkg/sqldb", "pkg/tasks", "pkg/tasks/filter", "pkg/taskstate"}},
	{"pkg/workflow", []string{"proto", "pkg/ingestq", "pkg/sqldb", "pkg/taskrun", "pkg/taskstate"}},
	{"pkg/tasks/examples/...", []string{"pkg/taskrun", "pkg/taskstate"}},
	{"pkg/ratelimit", nil},
	{"pkg/ratelimit/redislimit", []string{"pkg/ratelimit"}},
	{"pkg/auth", []string{"pkg/taskstate", "pkg/sqldb", "pkg/auth/audit", "pkg/batcher"}},
	{"pkg/auth/audit", []string{"pkg/taskstate", "pkg/sqldb"}},
	{"pkg/auth/token", []string{"pkg/auth", "pkg/taskstate"}},
	{"pkg/auth/oidc", []string{"pkg/auth/token", "pkg/taskstate"}},

	// the ingestion and its adapters
	{"pkg/ingest", []string{"pkg/taskstate", "pkg/ingestq", "pkg/taskrun", "pkg/tasks"}},       // the ports
	{"pkg/ingest/app", []string{"pkg/ingest", "pkg/ingest/...", "pkg/tasks", "pkg/taskstate"}}, // the rooms put together
	{"pkg/ingest/catalog", []string{"pkg/ingest", "pkg/tasks", "pkg/taskrun", "pkg/taskstate", "pkg/sqldb", "pkg/telemetry"}},
	{"pkg/ingest/files", []string{"pkg/ingest", "pkg/batcher", "pkg/crash", "pkg/sqldb"}},
	{"pkg/ingest/submit", []string{"pkg/ingest", "pkg/batcher", "pkg/crash", "pkg/sqldb", "pkg/taskstate"}},
	{"pkg/ingest/upload", []string{"pkg/ingest", "pkg/ingest/catalog", "pkg/ingest/files", "pkg/tasks", "pkg/batcher", "pkg/crash", "pkg/sqldb", "pkg/taskstate"}},
	{"pkg/ingest/embedcache", []string{"pkg/pause", "pkg/ingest", "pkg/batcher", "pkg/sqldb", "pkg/taskstate"}},
	{"pkg/ingest/pipeline", []string{"pkg/ingest", "pkg/ingest/catalog", "pkg/ingest/files", "pkg/ingest/embedcache", "pkg/ingest/textindex", "pkg/batcher", "pkg/crash", "pkg/sqldb", "pkg/taskrun", "pkg/taskstate"}},
	{"pkg/ingest/sweep", []string{"pkg/ingest", "pkg/ingest/catalog", "pkg/ingest/files", "pkg/ingest/submit", "pkg/tasks", "pkg/ingest/embedcache", "pkg/ingest/textindex", "pkg/crash", "pkg/sqldb", "pkg/taskstate"}},
	{"pkg/ingest/query", []string{"pkg/pause", "pkg/ingest", "pkg/ingest/catalog", "pkg/ingest/split/sentence", "pkg/ingest/textindex", "pkg/sqldb", "pkg/taskstate", "pkg/telemetry"}},
	{"pkg/ingest/watch", []string{"pkg/ingest", "pkg/taskstate"}},
	{"pkg/ingest/workflows", []string{"pkg/crash", "pkg/ingest", "pkg/ingest/app", "pkg/ingest/catalog", "pkg/ingest/extract/archive", "pkg/ingest/extract/charset", "pkg/ingest/pipeline", "pkg/pause", "pkg/sqldb", "pkg/tasks", "pkg/tasks/bulk", "pkg/taskstate", "pkg/workflow"}},
	{"pkg/ingest/ingesttest", []string{"pkg/...", "migrations"}}, // a whole application for tests
	{"pkg/dlq", []string{"pkg/pause", "pkg/streammq", "pkg/ingest", "pkg/ingestq", "pkg/taskstate", "pkg/crash"}},
	// the checker of a whole installation
	{"pkg/fsck", []string{"pkg/fsck/rules", "pkg/pause", "proto", "pkg/auth", "pkg/taskstate", "pkg/taskstate/history", "pkg/ingest", "pkg/ingest/files", "pkg/ingest/textindex", "pkg/ingestq", "pkg/sqldb", "pkg/telemetry"}},
	{"pkg/fsck/rules", []string{"pkg/taskstate/history"}},
	// asking for its checks, and running them
	{"pkg/checks", []string{"pkg/tasks", "pkg/taskstate", "pkg/workflow"}},
	{"pkg/checks/checker", []string{"pkg/checks", "pkg/fsck", "pkg/ingest", "pkg/taskstate", "pkg/workflow"}},
	{"pkg/ingest/internal/rest", []string{"pkg/pause", "pkg/telemetry"}},
	// readers of documents: below them what they share, above them the process that they run in, and its pool
	{"pkg/ingest/extract/document", []string{"pkg/ingest"}},
	{"pkg/ingest/extract/charset", []string{"pkg/ingest", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/archive", []string{"pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/detect", []string{"pkg/ingest", "pkg/ingest/extract/archive", "pkg/ingest/extract/charset", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/ole", []string{"pkg/ingest", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/office", []string{"pkg/ingest", "pkg/ingest/extract/archive", "pkg/ingest/extract/charset", "pkg/ingest/extract/document", "pkg/ingest/extract/ole"}},
	{"pkg/ingest/extract/docx", []string{"pkg/ingest", "pkg/ingest/extract/archive", "pkg/ingest/extract/document", "pkg/ingest/extract/office", "pkg/ingest/extract/ole"}},
	{"pkg/ingest/extract/pptx", []string{"pkg/ingest", "pkg/ingest/extract/archive", "pkg/ingest/extract/document", "pkg/ingest/extract/office"}},
	{"pkg/ingest/extract/xlsx", []string{"pkg/ingest", "pkg/ingest/extract/archive", "pkg/ingest/extract/document", "pkg/ingest/extract/office"}},
	{"pkg/ingest/extract/odf", []string{"pkg/ingest", "pkg/ingest/extract/archive", "pkg/ingest/extract/document", "pkg/ingest/extract/office"}},
	{"pkg/ingest/extract/rtf", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document", "pkg/ingest/extract/ole"}},
	{"pkg/ingest/extract/html", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/csv", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/epub", []string{"pkg/ingest", "pkg/ingest/extract/archive", "pkg/ingest/extract/document", "pkg/ingest/extract/html", "pkg/ingest/extract/office"}},
	{"pkg/ingest/extract/mail", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document", "pkg/ingest/extract/html", "pkg/ingest/extract/rtf"}},
	{"pkg/ingest/extract/plaintext", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/markdown", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document", "pkg/ingest/extract/html", "pkg/ingest/extract/plaintext"}},
	{"pkg/ingest/extract/notebook", []string{"pkg/ingest", "pkg/ingest/extract/document", "pkg/ingest/extract/markdown"}},
	{"pkg/ingest/extract/subtitles", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/xmldoc", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document", "pkg/ingest/extract/html", "pkg/ingest/extract/office"}},
	{"pkg/ingest/extract/latex", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document", "pkg/ingest/extract/plaintext"}},
	{"pkg/ingest/extract/code", []string{"pkg/ingest", "pkg/ingest/extract/charset", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/picture", []string{"pkg/ingest", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/pdf", []string{"pkg/ingest", "pkg/ingest/extract/document", "pkg/ingest/extract/ole"}},
	{"pkg/ingest/extract/pdf/wasm", []string{"pkg/ingest/extract/formats", "pkg/ingest/extract/pdf"}},
	{"pkg/ingest/extract/pdf/native", []string{"pkg/ingest/extract/formats", "pkg/ingest/extract/pdf"}},
	{"pkg/ingest/extract/formats", []string{"pkg/ingest", "pkg/ingest/extract/code", "pkg/ingest/extract/csv", "pkg/ingest/extract/detect", "pkg/ingest/extract/document", "pkg/ingest/extract/docx", "pkg/ingest/extract/epub", "pkg/ingest/extract/html", "pkg/ingest/extract/latex", "pkg/ingest/extract/mail", "pkg/ingest/extract/markdown", "pkg/ingest/extract/notebook", "pkg/ingest/extract/odf", "pkg/ingest/extract/office", "pkg/ingest/extract/picture", "pkg/ingest/extract/plaintext", "pkg/ingest/extract/pptx", "pkg/ingest/extract/rtf", "pkg/ingest/extract/subtitles", "pkg/ingest/extract/xlsx", "pkg/ingest/extract/xmldoc"}},
	{"pkg/ingest/extract/frame", []string{"pkg/ingest", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/sandbox", nil},
	{"pkg/ingest/extract/child", []string{"pkg/ingest", "pkg/ingest/extract/document", "pkg/ingest/extract/formats", "pkg/ingest/extract/frame", "pkg/ingest/extract/sandbox"}},
	{"pkg/ingest/extract/external", []string{"pkg/ingest", "pkg/ingest/extract/detect", "pkg/ingest/extract/document", "pkg/ingest/internal/rest"}},
	{"pkg/ingest/extract", []string{"pkg/ingest", "pkg/ingest/extract/detect", "pkg/ingest/extract/document", "pkg/ingest/extract/external", "pkg/ingest/extract/formats", "pkg/ingest/extract/frame", "pkg/ingest/extract/sandbox"}},
	{"pkg/ingest/extract/extracttest", []string{"pkg/ingest", "pkg/ingest/extract/document"}},
	{"pkg/ingest/extract/pdfgen", nil},
	{"pkg/ingest/split", []string{"pkg/ingest", "pkg/ingest/split/sentence"}},
	{"pkg/ingest/split/sentence", nil},
	{"pkg/ingest/textindex", []string{"pkg/ingest/textindex/analysis", "pkg/ingest/textindex/part", "pkg/crash", "pkg/sqldb", "pkg/taskstate"}},
	{"pkg/ingest/textindex/analysis", nil},
	{"pkg/ingest/textindex/part", nil}, // the format, without a database
	{"pkg/ingest/embed", []string{"pkg/ingest"}},
	{"pkg/ingest/embed/embedtest", []string{"pkg/ingest", "pkg/ingest/embed", "pkg/ingest/embed/local"}},
	{"pkg/ingest/embed/local", []string{"pkg/ingest", "pkg/ingest/embed"}},
	{"pkg/ingest/embed/openai", []string{"pkg/ingest", "pkg/ingest/embed", "pkg/ingest/internal/rest", "pkg/pause", "pkg/ratelimit"}},
	{"pkg/ingest/rerank", []string{"pkg/ingest/internal/rest", "pkg/telemetry"}},
	{"pkg/ingest/vector", []string{"pkg/ingest"}},
	{"pkg/ingest/vector/vectortest", []string{"pkg/ingest", "pkg/ingest/vector"}},
	{"pkg/ingest/vector/chroma", []string{"pkg/batcher", "pkg/ingest", "pkg/ingest/vector", "pkg/ingest/internal/rest"}},
	{"pkg/ingest/vector/embedded", []string{"pkg/batcher", "pkg/ingest", "pkg/ingest/vector"}},
	{"pkg/ingest/vector/qdrant", []string{"pkg/batcher", "pkg/ingest", "pkg/ingest/vector", "pkg/ingest/internal/rest"}},
	{"pkg/ingest/vector/pgvector", []string{"pkg/ingest", "pkg/ingest/vector", "pkg/ingest/internal/rest", "pkg/sqldb"}},

	// what ties the parts together
	{"pkg/wiring/...", []string{"pkg/...", "proto", "migrations"}},
	{"services/millweir/...", []string{"pkg/...", "proto", "migrations", "services/..."}}, // the all-in-one
	{"services/ingest-api/...", []string{"pkg/...", "proto", "migrations", "services/ingest-api/..."}},
	{"services/rehydrator/...", []string{"pkg/...", "proto", "migrations", "services/rehydrator/..."}},
	{"services/stream-mirror/...", []string{"pkg/...", "proto", "migrations", "services/stream-mirror/..."}},
	{"services/stream-worker/...", []string{"pkg/...", "proto", "migrations", "services/stream-worker/..."}},
	{"services/reclaimer/...", []string{"pkg/...", "proto", "migrations", "services/reclaimer/..."}},
	{"services/outbox-relay/...", []string{"pkg/...", "proto", "migrations", "services/outbox-relay/..."}},
	{"services/kafka-consumer/...", []string{"pkg/...", "proto", "migrations", "services/kafka-consumer/..."}},
	{"services/telegram-gateway/...", []string{"pkg/...", "proto", "migrations", "services/telegram-gateway/..."}},
	{"scripts/...", []string{"pkg/...", "proto", "migrations", "scripts/..."}},
}

// stdOnly are packages that import nothing but the standard library.
var stdOnly = []string{"pkg/taskstate", "pkg/taskstate/history", "pkg/taskstate/spec", "pkg/taskstate/spec/kafka", "pkg/taskstate/spec/search",
	"migrations"}

// home says which of our packages alone may import a library.
type home struct {
	library string // import path, or all below it with /...
	in      []string
	why     string
}

// homes keep each client library in one place. Tests may import what they like.
var homes = []home{
	{"github.com/gin-gonic/gin/...", []string{"services/ingest-api/..."}, "HTTP bodies only"},
	{"github.com/go-sql-driver/mysql/...", []string{"pkg/sqldb/mysql", "pkg/labserver", "scripts/..."}, "SQL drivers have one home per dialect"},
	{"github.com/jackc/pgx/v5/...", []string{"pkg/sqldb/postgres", "pkg/ingest/vector/pgvector", "scripts/..."}, "SQL drivers have one home per dialect; vectors have theirs"},
	{"modernc.org/sqlite/...", []string{"pkg/sqldb/sqlite", "scripts/..."}, "SQL drivers have one home per dialect"},
	{
		"github.com/redis/rueidis/...",
		[]string{"pkg/redisclient", "pkg/ingestq/redisq/...", "pkg/ingestq/streamq", "pkg/streammq/...", "pkg/ratelimit/redislimit", "pkg/wiring/...", "scripts/..."},
		"Redis clients live in the adapters; wiring opens the connection, scripts look from outside",
	},
	{"github.com/go-jose/go-jose/v4/...", []string{"pkg/auth/token"}, "tokens are read in one place"},
	{"golang.org/x/oauth2/...", []string{"pkg/auth/oidc"}, "people log in elsewhere in one place"},
	{"github.com/alicebob/miniredis/v2/...", []string{"pkg/ingestq/redisq/embedded"}, "the emulation is for the all-in-one"},
	{"github.com/kelseyhightower/envconfig", []string{"pkg/process"}, "settings are read in one place"},
	{"github.com/KimMachineGun/automemlimit/...", []string{"pkg/process"}, "the process sets its limit of memory"},
	{"github.com/agnivade/levenshtein", []string{"pkg/process"}, "settings are read in one place"},
	{"github.com/prometheus/client_golang/prometheus/promhttp", []string{"pkg/process"}, "figures are served in one place"},
	{"go.opentelemetry.io/otel/sdk/...", []string{"pkg/telemetry"}, "libraries use the API, main the SDK"},
	{"go.opentelemetry.io/otel/exporters/...", []string{"pkg/telemetry"}, "libraries use the API, main the SDK"},
	{"github.com/klippa-app/go-pdfium/...", []string{"pkg/ingest/extract/pdf", "pkg/ingest/extract/pdf/..."}, "readers live in the child"},
	{"github.com/tetratelabs/wazero/...", []string{"pkg/ingest/extract/pdf/wasm"}, "readers live in the child"},
	{"github.com/ebitengine/purego/...", []string{"pkg/ingest/extract/pdf/native"}, "one program alone loads a library of the system"},
	{"github.com/yuin/goldmark/...", []string{"pkg/ingest/extract/markdown"}, "readers live in the child"},
	{"github.com/landlock-lsm/go-landlock/...", []string{"pkg/ingest/extract/sandbox"}, "one place confines"},
	{"github.com/tiktoken-go/tokenizer/...", []string{"pkg/ingest/split"}, "an adapter has one library"},
	{"github.com/blevesearch/snowballstem/...", []string{"pkg/ingest/textindex/analysis"}, "an adapter has one library"},
	{"github.com/IBM/sarama/...", []string{"pkg/ingestq/kafkaq"}, "an adapter has one library"},
	{"github.com/santhosh-tekuri/jsonschema/...", []string{"pkg/workflow"}, "an adapter has one library"},
	{"code.dny.dev/ssrf", []string{"pkg/ingest/workflows"}, "an adapter has one library"},
	{"github.com/prometheus/common/...", []string{"pkg/mirror"}, "exporters of others are read in one place"},
	{"github.com/rabbitmq/amqp091-go", []string{"pkg/mirror", "scripts/..."}, "an adapter has one library; scripts look from outside"},
	{"github.com/xdg-go/scram/...", []string{"pkg/ingestq/kafkaq"}, "an adapter has one library"},
	{"github.com/twmb/franz-go/...", []string{"pkg/ingestq/kafkaq/embedded"}, "the imitation is for the all-in-one"},
	{"github.com/spf13/cobra/...", []string{"services/millweir/..."}, "the command line only"},
	{"github.com/vbauerster/mpb/v8/...", []string{"services/millweir/submit"}, "progress is drawn in one place"},
	{"github.com/itchyny/gojq", []string{"services/millweir/cli"}, "output is filtered in one place"},
	{"os/signal", []string{"pkg/process"}, "only pkg/process listens to signals"},
	{"log", nil, "log with slog"},
	{"expvar", nil, "figures go to Prometheus"},
	{prefix + "pkg/labserver/...", []string{"scripts/...", "pkg/ingest/ingesttest", "pkg/labserver/..."}, "servers are started by tests and scripts only"},
	{prefix + "pkg/wiring/...", []string{"pkg/wiring/...", "services/...", "scripts/..."}, "libraries do not know how they are wired"},
	{prefix + "pkg/process", []string{"pkg/wiring/...", "services/...", "scripts/..."}, "libraries do not know their process"},
	{"github.com/stretchr/testify/...", testPackages, "tests only"},
	{"pgregory.net/rapid", testPackages, "tests only"},
	{"testing", append([]string{"pkg/labserver"}, testPackages...), "tests only"},
}

// testPackages match the conformance suites and fakes: a last path element that ends in "test".
var testPackages = []string{"*test"}

// calls that only some packages may make, found in the source: a standard package and a name in it.
var calls = []struct {
	pkg, name string
	in        []string // the packages that may; nil: none
	only      []string // the rule is for these packages; nil: for all
	why       string
}{
	{"os", "Exit", []string{"pkg/process", "pkg/labserver", "pkg/streammq/internal/redistest"}, nil, "only pkg/process ends the process"},
	{"os", "Rename", []string{"services/millweir/cli"}, []string{"services/millweir/cli", "services/millweir/submit", "pkg/streammq/..."}, "Windows renames no open file: ReplaceFile"},
	{"time", "Now", nil, []string{"pkg/taskstate", "pkg/outbox"}, "time comes in as an argument"},
	{"time", "Sleep", nil, nil, "wait for something"},
	{"slog", "Default", nil, nil, "the constructor takes a *slog.Logger"},
	{"http", "DefaultClient", nil, nil, "a client of our own with time-outs"},
	{"http", "Client", clients, nil, "requests leave through one client for each purpose (A5)"},
	{"http", "NewRequestWithContext", clients, nil, "requests leave through one client for each purpose (A5)"},
}

// clients are the packages that send HTTP requests: to the embedding and vector services, for a key set, to an identity provider, to
// RabbitMQ's exporters, to this very machine, to the gateway and to Telegram. The last four start, play and test servers.
var clients = []string{
	"pkg/ingest/internal/rest", "pkg/ingest/workflows", "pkg/workflow", "pkg/auth/token", "pkg/auth/oidc", "pkg/mirror", "pkg/process", "services/millweir/client", "services/telegram-gateway/telegram",
	"pkg/labserver", "pkg/telegramtest", "pkg/streammq/internal/redistest", "scripts/...",
}

// matches tells whether a path fits a pattern: itself, a/... for a and all below it, *test for names that end so.
func matches(pattern, path string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(path, suffix)
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}

func matchesAny(patterns []string, path string) bool {
	for _, p := range patterns {
		if matches(p, path) {
			return true
		}
	}
	return false
}

// roomOf is the longest room that fits.
func roomOf(path string) (room, bool) {
	best, found := room{}, false
	for _, r := range rooms {
		if matches(r.path, path) && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}
