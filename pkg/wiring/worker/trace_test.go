package worker

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/wiring/documents"
	pb "github.com/millweir/millweir/proto"
)

// On partitions the spans of sending and receiving belong to the upload's trace, or link to it (contract §8).
// Not parallel: it sets variables, and the global provider.
func TestSpansOnPartitionsContinueTheUpload(t *testing.T) {
	server := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	spans := tracetest.NewSpanRecorder()
	provider, before := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), otel.GetTracerProvider()
	otel.SetTracerProvider(provider)
	t.Cleanup(func() {
		otel.SetTracerProvider(before)
		require.NoError(t, provider.Shutdown(context.Background()))
	})
	w, err := settings(t, map[string]string{
		"DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "m.db"), "MYSQL_DSN": "", "VECTOR_STORE": "embedded", "INGEST_QUEUE": "redis",
		"REDIS_URL": "redis://" + server.Addr, "INGEST_STREAM_PARTITIONS": "4",
	})
	require.NoError(t, err)
	p, err := documents.Open(t.Context(), newEnv(), w.Shared)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	deps, err := transport(p, &w)
	require.NoError(t, err)
	queue := deps.Queue

	const upload = "4bf92f3577b34da6a3ce929d0e0e4736"
	_, err = queue.(ingestq.Publisher).Publish(t.Context(), []*pb.TaskEnvelope{{
		TaskId: "0190a6e0-0000-7000-8000-000000000001", DocumentId: "d", Context: &pb.TaskContext{Traceparent: "00-" + upload + "-00f067aa0ba902b7-01"},
	}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- queue.Run(ctx) }()
	var got []ingestq.Delivery
	require.Eventually(t, func() bool {
		some, err := queue.Read(ctx, 10, 100*time.Millisecond)
		got = append(got, some...)
		return err == nil && len(got) == 1
	}, time.Minute, time.Millisecond)
	stop()
	require.NoError(t, <-ended)

	byName := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		byName[s.Name()] = s
	}
	require.Contains(t, byName, "send ingest-tasks")
	require.Equal(t, upload, byName["send ingest-tasks"].SpanContext().TraceID().String())
	require.Contains(t, byName, "receive ingest-tasks")
	links := byName["receive ingest-tasks"].Links()
	require.Len(t, links, 1)
	require.Equal(t, upload, links[0].SpanContext.TraceID().String())

	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	headers := 0
	for _, stream := range []string{"0", "1", "2", "3"} {
		entries, err := client.Do(t.Context(), client.B().Xrange().Key("stream:topic:ingest-tasks:p:"+stream).Start("-").End("+").Build()).AsXRange()
		require.NoError(t, err)
		for _, e := range entries {
			require.Contains(t, e.FieldValues["headers"], upload)
			headers++
		}
	}
	require.Equal(t, 1, headers)
}
