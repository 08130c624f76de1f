package taskrun

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
	pb "github.com/millweir/millweir/proto"
)

const (
	tracerName = "github.com/millweir/millweir/pkg/taskrun"
	maxLinks   = 128 // what the SDK keeps on one span by default
)

// attempt is the span of one claim, begun inside its transaction: the row then knows what the next attempt links to.
type attempt struct {
	ctx  context.Context // claims the span and the task's id, for log lines and calls; it never ends by itself
	span trace.Span
}

// beginAttempt starts the span of a claim of t, as child of the accepting request (OTel messaging conventions: "process").
// It links to what made the message, and a retry or takeover to the attempt before. Unrecorded spans cost no attributes.
func (r *Runner) beginAttempt(ctx context.Context, t taskstate.Task) attempt {
	ctx = telemetry.WithTask(trace.ContextWithSpanContext(context.WithoutCancel(ctx), trace.SpanContext{}), t.ID)
	ctx = telemetry.WithTraceparent(telemetry.WithRequest(ctx, t.RequestID), t.TraceParent)
	parent := trace.SpanContextFromContext(ctx)
	ctx, span := r.deps.Tracer.Start(ctx, spanName("process", r.destination), trace.WithSpanKind(trace.SpanKindConsumer))
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
func (r *Runner) describe(h *claim) {
	if !h.span.IsRecording() {
		return
	}
	h.span.SetAttributes(append(r.destination,
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.message.id", h.delivery),
		attribute.String("messaging.client.id", r.cfg.Process),
		attribute.String("millweir.task.id", h.task.ID),
		attribute.String("millweir.task.type", h.task.Type),
		attribute.Int("millweir.task.attempt", h.task.AttemptCount+1),
		attribute.Int64("millweir.task.fence", h.token.Fence),
	)...)
}

// destinationOf says in a trace which queue it is, as far as the queue tells.
func destinationOf(p ingestq.Publisher) []attribute.KeyValue {
	d, ok := p.(ingestq.Described)
	if !ok {
		return nil
	}
	system, name := d.Destination()
	kvs := []attribute.KeyValue{
		attribute.String("messaging.system", system), attribute.String("messaging.destination.name", name),
	}
	return kvs[:len(kvs):len(kvs)] // an append copies
}

// spanName is an operation and the queue that it is about, as the conventions have it: few names, whatever runs.
func spanName(operation string, destination []attribute.KeyValue) string {
	for _, kv := range destination {
		if kv.Key == "messaging.destination.name" {
			return operation + " " + kv.Value.AsString()
		}
	}
	return operation
}

// below returns ctx with the first span of the claims that something records, so that a transaction for many of them stands in
// one of their traces.
func below(ctx context.Context, batch []outcome) context.Context {
	for _, o := range batch {
		if span := o.h.ends(); span != nil {
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

// traced calls send within a producer span. The span stands below the request that is being served;
// one of a loop stands below its only message, or links to its many.
func traced(ctx context.Context, tracer trace.Tracer, p ingestq.Publisher, es []*pb.TaskEnvelope, send func(context.Context) ([]string, error)) error {
	if len(es) == 1 && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = telemetry.WithTraceparent(ctx, es[0].GetContext().GetTraceparent())
	}
	ctx, span := tracer.Start(ctx, spanName("send", destinationOf(p)), trace.WithSpanKind(trace.SpanKindProducer))
	defer span.End()
	ids, err := send(ctx)
	if !span.IsRecording() {
		return err
	}
	attrs := append(destinationOf(p),
		attribute.String("messaging.operation.type", "send"), attribute.String("messaging.operation.name", "send"))
	if len(es) == 1 {
		attrs = append(attrs, attribute.String("millweir.task.id", es[0].GetTaskId()))
		if len(ids) == 1 && ids[0] != "" {
			attrs = append(attrs, attribute.String("messaging.message.id", ids[0]))
		}
	} else {
		attrs = append(attrs, attribute.Int("messaging.batch.message_count", len(es)))
	}
	span.SetAttributes(attrs...)
	linkMessages(span, es)
	failSpan(span, err)
	return err
}

// linkMessages links a batch to what made its messages.
func linkMessages(span trace.Span, es []*pb.TaskEnvelope) {
	if len(es) < 2 {
		return
	}
	for _, e := range es[:min(len(es), maxLinks)] {
		if sc := telemetry.SpanContext(e.GetContext().GetTraceparent()); sc.IsValid() {
			span.AddLink(trace.Link{SpanContext: sc})
		}
	}
}

// failSpan marks a span as failed, without secrets.
func failSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetStatus(codes.Error, taskstate.Shorten(telemetry.Redact(err.Error())))
	}
}
