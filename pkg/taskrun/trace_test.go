package taskrun

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

const accepted = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"

// An unrecorded attempt writes nothing into its row and passes the accepting request's trace on.
func TestUntracedClaimWritesNoTrace(t *testing.T) { // not parallel: it counts allocations
	w := newWorld(t)
	p := w.make("a", &testHandler{})
	p.deps.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("")
	task := taskstate.Task{ID: "t", Type: "test", TraceParent: accepted + "0", AttemptTrace: accepted + "1"}
	a := p.beginAttempt(t.Context(), task)
	require.Empty(t, attemptTrace(a))
	require.Contains(t, telemetry.Traceparent(a), "4bf92f3577b34da6a3ce929d0e0e4736", "log lines keep the trace id")
	require.Equal(t, "t", telemetry.TaskID(a))
	got := testing.AllocsPerRun(200, func() { trace.SpanFromContext(p.beginAttempt(context.Background(), task)).End() })
	t.Logf("allocations of an untraced attempt: %.0f", got)
	require.Less(t, got, 25.0)
}

// What the claim notes in its row is what the next claim links to; the transaction may run twice.
func TestClaimNotesItsSpan(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	w := newWorld(t)
	p := w.make("a", &testHandler{})
	p.deps.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("")
	c := p.newClaim(nil, false)
	m := taskstate.DBClock{Now: instant(), Epoch: 1}
	row := []taskstate.Task{{ID: "t", Type: "test", Status: taskstate.StatusQueued, MaxAttempts: 3, TraceParent: accepted + "1"}}
	one, err := c.decide(t.Context(), nil, m, row)
	require.NoError(t, err)
	again, err := c.decide(t.Context(), nil, m, row)
	require.NoError(t, err)
	require.Len(t, one[0].Change.AttemptTrace, 55)
	require.Equal(t, one[0].Change.AttemptTrace, again[0].Change.AttemptTrace)

	row[0].AttemptTrace = one[0].Change.AttemptTrace
	trace.SpanFromContext(p.beginAttempt(t.Context(), row[0])).End()
	got := spans.GetSpans()
	require.Len(t, got, 1)
	require.Equal(t, "00f067aa0ba902b7", got[0].Parent.SpanID().String())
	require.Len(t, got[0].Links, 2)
	require.Equal(t, telemetry.SpanContext(row[0].AttemptTrace).SpanID(), got[0].Links[1].SpanContext.SpanID())
}
