package e2e

import (
	"encoding/hex"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/services/millweir/internal/otlptest"
)

// An upload is one tree of spans, whichever way it takes and whoever works on it: five separate processes and a second gateway on
// MariaDB, Redis, Kafka and Chroma export to a collector; the first attempt of each upload fails.
func TestAnUploadIsOneTreeOfSpans(t *testing.T) {
	t.Parallel()
	spans := otlptest.Start(t)
	service := embedtest.Start(t, embedtest.Options{})
	service.Set(embedtest.Fault{Kind: embedtest.Fail, Match: func(e embedtest.Effect) bool { return e.Fence == 1 }})
	onKafka, init := onKafka(t, labserver.Kafka(t).URL(""))
	init()
	topic := strings.TrimPrefix(onKafka[2], "INGEST_KAFKA_TOPIC=")
	env := append([]string{
		"AUTH_MODE=none", "HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR=" + filepath.Join(t.TempDir(), "uploads"),
		"MYSQL_DSN=" + labserver.MySQLDatabase(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""),
		"REDIS_URL=" + labserver.RedisURL(t), "INGEST_STREAM_KEY=" + topic + ":redis", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=1",
		"EMBEDDING_BASE_URL=" + service.URL, "EMBEDDING_MODEL=test", "EMBEDDING_API=openai",
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL, "OTEL_TRACES_SAMPLER=always_on",
		"INGEST_PROMISE_SLACK_MS=600000", // a delivery that is late on a busy machine is taken for lost, and worked on without it
	}, onKafka...)
	onRedis := append(slices.Clone(env), "INGEST_QUEUE=redis")
	migrate(t, env...)
	programs := []*program{
		start(t, "ingest-api", env), start(t, "ingest-api", onRedis), start(t, "outbox-relay", env),
		start(t, "kafka-consumer", env), start(t, "stream-worker", onRedis), start(t, "reclaimer", env),
	}
	gateway := func(p *program) *client {
		return newClient(t, "http://"+p.printed(`"gateway: listening".*?"addr":"([^"]+)"`))
	}
	ids := map[string]string{} // the task of each way
	for way, upload := range map[string]func() string{
		"kafka": func() string { return gateway(programs[0]).accepted("kafka.txt", prose("basalt", 2)).TaskID },
		"redis": func() string { return gateway(programs[1]).accepted("redis.txt", prose("gabbro", 2)).TaskID },
	} { // one after the other: runs beside each other share transactions, whose statements are in the tree of one of them
		ids[way] = upload()
		require.Equal(t, "SUCCEEDED", gateway(programs[0]).ended(ids[way]).Status)
	}
	for _, p := range programs {
		p.stop() // the last spans go out
	}
	all, errs := spans.Spans()
	require.Empty(t, errs)

	trees := map[string][]otlptest.Span{}
	for _, s := range all {
		trees[hex.EncodeToString(s.GetTraceId())] = append(trees[hex.EncodeToString(s.GetTraceId())], s)
		require.NotRegexp(t, `[0-9a-f]{8}-[0-9a-f]{4}-|\d{6}`, strings.TrimPrefix(s.GetName(), topic), "no id in a name")
		if len(s.GetParentSpanId()) == 0 && s.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
			require.NotEmpty(t, s.GetLinks(), "a loop makes no trace of its own: %s of %s", s.GetName(), s.Service)
		}
	}
	work := []string{
		`POST /api/knowledge/documents/upload-async`, `submit`, `transaction`, `INSERT ingest_task_body`, `INSERT ingest_task_state`, `COMMIT`, `apply`, `UPDATE ingest_task_state`, `INSERT ingest_task_call`, `INSERT ingest_task_log`,
		`extract`, `plan`, `embed`, `POST /embeddings`, `rows`, `INSERT knowledge_segment`, `index`, `POST \S+/\{collection\}/add`, `finish`,
	}
	for way, want := range map[string][]string{
		"kafka": append(work, "create "+topic, "send "+topic, "process "+topic),
		"redis": append(work, "send "+topic+":redis", "process "+topic+":redis"),
	} {
		tree := treeOf(t, trees, ids[way])
		require.Contains(t, services(tree), "ingest-api", way)
		require.Greater(t, len(services(tree)), 1, "%s: a worker of its own exported too", way)
		requireOneTree(t, way, tree)
		for _, name := range want {
			whole := regexp.MustCompile("^" + name + "$")
			require.True(t, slices.ContainsFunc(tree, func(s otlptest.Span) bool { return whole.MatchString(s.GetName()) }), "%s: no span %s in %s", way, name, names(tree))
		}
	}
	require.Subset(t, services(treeOf(t, trees, ids["kafka"])), []string{"outbox-relay", "ingest-api"})
	t.Logf("kafka:\n%s", strings.Join(names(treeOf(t, trees, ids["kafka"])), "\n"))
}

// treeOf is the trace in which a task was worked on.
func treeOf(t *testing.T, trees map[string][]otlptest.Span, task string) []otlptest.Span {
	t.Helper()
	for _, tree := range trees {
		for _, s := range tree {
			for _, a := range s.GetAttributes() {
				if a.GetKey() == "millweir.task.id" && a.GetValue().GetStringValue() == task && s.GetKind() == tracepb.Span_SPAN_KIND_CONSUMER {
					return tree
				}
			}
		}
	}
	require.Fail(t, "no trace of task "+task)
	return nil
}

// requireOneTree: one span has no parent, and every other's is there.
func requireOneTree(t *testing.T, way string, tree []otlptest.Span) {
	t.Helper()
	known := map[string]bool{}
	for _, s := range tree {
		known[string(s.GetSpanId())] = true
	}
	var roots []string
	for _, s := range tree {
		if len(s.GetParentSpanId()) == 0 {
			roots = append(roots, s.GetName())
			continue
		}
		require.True(t, known[string(s.GetParentSpanId())], "%s: the parent of %s (%s) is nowhere", way, s.GetName(), s.Service)
	}
	require.Equal(t, []string{"POST /api/knowledge/documents/upload-async"}, roots, way)
}

// services are those that took part in a trace.
func services(tree []otlptest.Span) (out []string) {
	for _, s := range tree {
		out = append(out, s.Service)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// names are those of a trace's spans.
func names(tree []otlptest.Span) (out []string) {
	for _, s := range tree {
		out = append(out, s.Service+": "+s.GetName())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
