package outbox

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/telemetry"
)

// tracer is that of this package; asked for anew, since a test may change who provides it.
func tracer() trace.Tracer { return otel.Tracer("github.com/millweir/millweir/pkg/outbox") }

// maxLinks is what the SDK keeps on one span by default.
const maxLinks = 128

// messaging describes events of a topic by the OTel messaging conventions.
func messaging(operation, topic string, n int) trace.SpanStartEventOption {
	attrs := []attribute.KeyValue{
		attribute.String("messaging.system", "kafka"), attribute.String("messaging.destination.name", topic),
		attribute.String("messaging.operation.name", operation), attribute.String("messaging.operation.type", operation),
	}
	if n > 1 {
		attrs = append(attrs, attribute.Int("messaging.batch.message_count", n))
	}
	return trace.WithAttributes(attrs...)
}

// created begins the span of events that are written in a task's transaction, below the context's span if that is recorded.
func created(ctx context.Context, events []newEvent) (end func(error)) {
	if len(events) == 0 || !trace.SpanFromContext(ctx).IsRecording() {
		return func(error) {}
	}
	_, span := tracer().Start(ctx, "create "+events[0].Topic, trace.WithSpanKind(trace.SpanKindProducer), messaging("create", events[0].Topic, len(events)))
	return func(err error) { endSpan(span, err) }
}

// sent begins the span of a batch that goes to the broker: below the only event's trace, or linked to those of many.
func sent(ctx context.Context, events []Event) (_ context.Context, end func(error)) {
	var links []trace.Link
	for _, e := range events {
		if sc := telemetry.SpanContext(e.TraceParent); sc.IsSampled() && len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	if len(links) == 0 { // nobody asked for any of these traces
		return ctx, func(error) {}
	}
	if len(events) == 1 {
		ctx, links = telemetry.WithTraceparent(ctx, events[0].TraceParent), nil
	}
	name := events[0].Topic
	ctx, span := tracer().Start(ctx, "send "+name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...), messaging("send", name, len(events)))
	return ctx, func(err error) { endSpan(span, err) }
}

// endSpan ends a span with its result, without secrets.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, telemetry.Redact(err.Error()))
	}
	span.End()
}
