package taskrun

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/taskrun/internal/local"
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

// Where nothing records, a run has the ids of its task all the same, when it asks; and its context ends as any other, with the
// first cause, whether somebody asked before or after.
func TestARunHasItsIdsAndItsEndWhenItAsks(t *testing.T) {
	t.Parallel()
	require.True(t, newWorld(t).make("a", &testHandler{}).silent())
	for _, asked := range []bool{true, false} {
		h := &local.Claim{Task: taskstate.Task{ID: "t", RequestID: "r", TraceParent: accepted + "0"}, Base: t.Context()}
		if asked {
			require.NoError(t, context.Cause(h.Ctx()))
		}
		require.NoError(t, h.Ctx().Err())
		require.NoError(t, h.Cause())
		h.Cancel(local.ErrStalled)
		h.Cancel(nil)
		require.ErrorIs(t, h.Ctx().Err(), context.Canceled)
		require.ErrorIs(t, h.Cause(), local.ErrStalled)
		require.ErrorIs(t, context.Cause(h.Ctx()), local.ErrStalled)
		below, cancel := context.WithTimeout(h.Ctx(), time.Hour)
		require.ErrorIs(t, context.Cause(below), local.ErrStalled)
		cancel()
		<-h.Ctx().Done()
		require.Equal(t, "t", telemetry.TaskID(h.Ctx()))
		require.Equal(t, accepted+"0", telemetry.Traceparent(h.Ctx()), "calls and log lines keep the trace of the upload")
	}
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
