package mq

import (
	"context"
	"maps"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/telemetry"
)

// scopeName names the library to whoever collects.
const scopeName = "github.com/millweir/millweir/pkg/streammq"

// maxBatchLinks bounds the links of one span of many messages.
const maxBatchLinks = 100

// Tracing makes spans of streammq's messages by the OTel messaging conventions. The context travels in the header
// traceparent, so that a retry and a replay link to the publisher as the first run does.
type Tracing struct{ tracer trace.Tracer }

// NewTracing makes one.
func NewTracing(p trace.TracerProvider) *Tracing {
	return &Tracing{p.Tracer(scopeName)}
}

// Publish publishes under a span of its own, whose context goes with the message unless it carries one already.
// Errors are the producer's.
func (q *Tracing) Publish(ctx context.Context, p *streammq.Producer, topic string, m streammq.Message) (streammq.Receipt, error) {
	ctx, span := q.start(ctx, trace.SpanKindProducer, "send", topic)
	defer span.End()
	if m.Headers[telemetry.KeyTraceparent] == "" {
		m.Headers = maps.Clone(m.Headers) // the caller's stay as they are
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		telemetry.Inject(ctx, m.Headers)
	}
	r, err := p.Publish(ctx, topic, m)
	if err != nil {
		failed(span, err)
		return r, err
	}
	span.SetAttributes(attribute.String("messaging.message.id", r.ID), attribute.String("messaging.message.conversation_id", r.UUID), partitionOf(r.Partition))
	return r, nil
}

// PublishBatch publishes under one span, which is linked to the traces that the messages carry. One message alone, published by a
// loop that serves no request, continues its own. Errors are the producer's.
func (q *Tracing) PublishBatch(ctx context.Context, p *streammq.Producer, topic string, ms []streammq.Message) ([]streammq.Receipt, error) {
	if len(ms) == 1 && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = telemetry.WithTraceparent(ctx, ms[0].Headers[telemetry.KeyTraceparent])
	}
	ctx, span := q.start(ctx, trace.SpanKindProducer, "send", topic, batchOf(len(ms)))
	defer span.End()
	if span.IsRecording() && len(ms) > 1 {
		for _, m := range ms[:min(len(ms), maxBatchLinks)] {
			link(span, m.Headers)
		}
	}
	receipts, err := p.PublishBatch(ctx, topic, ms)
	if err != nil {
		failed(span, err)
	}
	return receipts, err
}

// Received makes a span of a Poll that began at a time and answered something; it is linked to what the messages carry.
func (q *Tracing) Received(ctx context.Context, began time.Time, ds []*streammq.Delivery) {
	if len(ds) == 0 {
		return
	}
	first := ds[0]
	_, span := q.start(ctx, trace.SpanKindConsumer, "receive", first.Topic, trace.WithTimestamp(began),
		trace.WithAttributes(attribute.String("messaging.consumer.group.name", first.Group)), batchOf(len(ds)))
	defer span.End()
	if span.IsRecording() {
		for _, d := range ds[:min(len(ds), maxBatchLinks)] {
			link(span, d.Headers)
		}
	}
}

// link links a span to the one that the headers name.
func link(span trace.Span, headers map[string]string) {
	if sc := telemetry.SpanContext(headers[telemetry.KeyTraceparent]); sc.IsValid() {
		span.AddLink(trace.Link{SpanContext: sc})
	}
}

// batchOf tells how many messages a span is of.
func batchOf(n int) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.Int("messaging.batch.message_count", n))
}

// Handler runs h under a span of its own that is linked to the message's publisher.
func (q *Tracing) Handler(h streammq.Handler) streammq.Handler {
	return func(ctx context.Context, d *streammq.Delivery) streammq.Result {
		ctx, span := q.start(ctx, trace.SpanKindConsumer, "process", d.Topic, telemetry.LinkTo(d.Headers[telemetry.KeyTraceparent]),
			trace.WithAttributes(
				attribute.String("messaging.message.id", d.ID), attribute.String("messaging.message.conversation_id", d.UUID),
				attribute.String("messaging.consumer.group.name", d.Group), partitionOf(d.Partition), attribute.Int("messaging.streammq.attempt", d.Attempt),
			))
		defer span.End() // also after a panic, which streammq catches
		result := h(ctx, d)
		span.SetAttributes(attribute.String("messaging.streammq.outcome", string(result.Outcome)))
		if result.Err != nil {
			failed(span, result.Err)
		}
		return result
	}
}

// destination names the topic.
func destination(topic string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("messaging.system", "streammq"), attribute.String("messaging.destination.name", topic)}
}

// start begins the span of what is done with a topic.
func (q *Tracing) start(ctx context.Context, kind trace.SpanKind, done, topic string, more ...trace.SpanStartOption) (context.Context, trace.Span) {
	what := []attribute.KeyValue{attribute.String("messaging.operation.name", done), attribute.String("messaging.operation.type", done)}
	return q.tracer.Start(ctx, done+" "+topic, append(more, trace.WithSpanKind(kind), trace.WithAttributes(append(destination(topic), what...)...))...)
}

func partitionOf(n int) attribute.KeyValue {
	return attribute.String("messaging.destination.partition.id", strconv.Itoa(n))
}

// failed marks a span; the text is redacted as in logs.
func failed(span trace.Span, err error) {
	text := telemetry.Redact(err.Error())
	span.SetStatus(codes.Error, text)
	span.AddEvent("exception", trace.WithAttributes(attribute.String("exception.message", text)))
}
