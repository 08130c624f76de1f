package dev

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/process"
)

// collector keeps the spans that a process exports.
type collector struct {
	mu    sync.Mutex
	spans []*tracepb.Span
	errs  []error
}

// ServeHTTP takes one export; its body is wire-compatible with TracesData.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs = append(c.errs, err)
	}
	for _, resource := range data.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// below answers the spans of a name whose parent is the given one.
func (c *collector) below(parent *tracepb.Span, name string) (out []*tracepb.Span) {
	for _, s := range c.spans {
		if s.GetName() == name && string(s.GetParentSpanId()) == string(parent.GetSpanId()) {
			out = append(out, s)
		}
	}
	return out
}

func TestOneTraceFromUploadToVectors(t *testing.T) {
	got := &collector{}
	otlp := httptest.NewServer(got)
	defer otlp.Close()
	service := embedtest.Start(t, embedtest.Options{})
	service.Set(embedtest.Fault{Kind: embedtest.Fail, Match: func(e embedtest.Effect) bool { return e.Fence == 1 }})
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": otlp.URL, "EMBEDDING_BASE_URL": service.URL, "EMBEDDING_MODEL": "test",
		"EMBEDDING_API": "openai", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS": "1",
	} {
		t.Setenv(name, value)
	}
	url, stop := start(t, t.TempDir())
	require.Equal(t, "SUCCEEDED", upload(t, url, "otters.txt", "Otters hold hands while they sleep on the water."))
	require.Equal(t, process.ExitOK, stop())
	require.Empty(t, got.errs)

	var request *tracepb.Span
	for _, s := range got.spans {
		if s.GetName() == "POST /api/knowledge/documents/upload" {
			request = s
		}
	}
	require.NotNil(t, request)
	require.NotEmpty(t, got.below(request, "send"), "the delivery is sent below the request")
	attempts := got.below(request, "process document")
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
		spans := got.below(retry, stage)
		require.Len(t, spans, 1, stage)
		require.Equal(t, request.GetTraceId(), spans[0].GetTraceId(), stage)
	}
	require.Empty(t, got.below(first, "index"), "the failed attempt wrote no vectors")

	effects := service.Effects()
	last := effects[len(effects)-1]
	require.NotEmpty(t, last.Task)
	require.Positive(t, last.Fence)
	require.Contains(t, last.TraceParent, hex.EncodeToString(request.GetTraceId()), "the embedding call is of the upload's trace")
}
