package dev

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/millweir/internal/otlptest"
)

func TestOneTraceFromUploadToVectors(t *testing.T) {
	got := otlptest.Start(t)
	service := embedtest.Start(t, embedtest.Options{})
	service.Set(embedtest.Fault{Kind: embedtest.Fail, Match: func(e embedtest.Effect) bool { return e.Fence == 1 }})
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": got.URL, "EMBEDDING_BASE_URL": service.URL, "EMBEDDING_MODEL": "test",
		"EMBEDDING_API": "openai", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS": "1",
	} {
		t.Setenv(name, value)
	}
	url, stop := start(t, t.TempDir())
	require.Equal(t, "SUCCEEDED", upload(t, url, "otters.txt", "Otters hold hands while they sleep on the water."))
	require.Equal(t, process.ExitOK, stop())
	spans, errs := got.Spans()
	require.Empty(t, errs)

	var request otlptest.Span
	for _, s := range spans {
		if s.GetName() == "POST /api/knowledge/documents/upload" {
			request = s
		}
	}
	require.NotNil(t, request.Span)
	require.NotEmpty(t, got.Below(request, "send ingest:tasks"), "the delivery is sent below the request")
	attempts := got.Below(request, "process ingest:tasks")
	require.Len(t, attempts, 2, "one failed, one retried, both below the request")
	first, retry := attempts[0], attempts[1]
	if first.GetStartTimeUnixNano() > retry.GetStartTimeUnixNano() {
		first, retry = retry, first
	}
	require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, first.GetStatus().GetCode())
	require.Equal(t, tracepb.Status_STATUS_CODE_UNSET, retry.GetStatus().GetCode())
	require.Len(t, first.GetLinks(), 1)
	require.Len(t, retry.GetLinks(), 2)
	require.Equal(t, first.GetSpanId(), retry.GetLinks()[1].GetSpanId(), "a retry links to the attempt before")
	for _, stage := range []string{"extract", "plan", "embed", "rows", "index", "finish"} {
		stages := got.Below(retry, stage)
		require.Len(t, stages, 1, stage)
		require.Equal(t, request.GetTraceId(), stages[0].GetTraceId(), stage)
	}
	require.Empty(t, got.Below(first, "index"), "the failed attempt wrote no vectors")

	effects := service.Effects()
	last := effects[len(effects)-1]
	require.NotEmpty(t, last.Task)
	require.Positive(t, last.Fence)
	require.Contains(t, last.TraceParent, hex.EncodeToString(request.GetTraceId()), "the embedding call is of the upload's trace")
}
