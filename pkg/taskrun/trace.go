package taskrun

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/taskrun/internal/delivery"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

// attempt is the span of one claim, begun inside its transaction: the row then knows what the next attempt links to.
type attempt struct {
	ctx  context.Context // claims the span and the task's id, for log lines and calls; it never ends by itself
	span trace.Span
}

// beginAttempt starts the span of a claim of t, as child of the accepting request (OTel messaging conventions: "process").
// It links to what made the message, and a retry or takeover to the attempt before. Unrecorded spans cost no attributes.
func (r *core) beginAttempt(ctx context.Context, t taskstate.Task) attempt {
	ctx = telemetry.WithTask(trace.ContextWithSpanContext(context.WithoutCancel(ctx), trace.SpanContext{}), t.ID)
	ctx = telemetry.WithTraceparent(telemetry.WithRequest(ctx, t.RequestID), t.TraceParent)
	parent := trace.SpanContextFromContext(ctx)
	ctx, span := r.deps.Tracer.Start(ctx, delivery.SpanName("process", r.destination), trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		if parent.IsValid() {
			span.AddLink(trace.Link{SpanContext: parent})
		}
		if before := telemetry.SpanContext(t.AttemptTrace); before.IsValid() {
			span.AddLink(trace.Link{SpanContext: before, Attributes: []attribute.KeyValue{attribute.String("millweir.link", "attempt before")}})
		}
	}
	return attempt{ctx: ctx, span: span}
}

// traceparent is what the row keeps of a: "" when nothing records it, so that an untraced claim writes no more than before.
func (a attempt) traceparent() string {
	if !a.span.IsRecording() {
		return ""
	}
	return telemetry.Traceparent(a.ctx)
}

// describe adds what is known once the claim is committed.
func (r *core) describe(h *local.Claim) {
	if !h.Span.IsRecording() {
		return
	}
	h.Span.SetAttributes(append(r.destination,
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.message.id", h.Delivery),
		attribute.String("messaging.client.id", r.cfg.Process),
		attribute.String("millweir.task.id", h.Task.ID),
		attribute.String("millweir.task.type", h.Task.Type),
		attribute.Int("millweir.task.attempt", h.Task.AttemptCount+1),
		attribute.Int64("millweir.task.fence", h.Token.Fence),
	)...)
}

// below returns ctx with the first span of the claims that something records, so that a transaction for many of them stands in
// one of their traces.
func below(ctx context.Context, batch []outcome) context.Context {
	for _, o := range batch {
		if span := o.h.Ends(); span != nil {
			return trace.ContextWithSpan(ctx, span)
		}
	}
	return ctx
}

// arriving is the same for claims, whose spans begin with them: the trace of the first message that is sampled.
func (a arrivals) arriving(ctx context.Context) context.Context {
	for _, id := range a.ids {
		parent := a.byTask[id][0].Envelope.GetContext().GetTraceparent()
		if telemetry.SpanContext(parent).IsSampled() {
			return telemetry.WithTraceparent(ctx, parent)
		}
	}
	return ctx
}
