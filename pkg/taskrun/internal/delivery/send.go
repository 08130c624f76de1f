package delivery

import (
	"context"
	"fmt"

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

// Publish adds one delivery per task: the fast path after a commit.
// An error loses nothing: the promise in each row covers what was not added (design D5).
func Publish(ctx context.Context, p ingestq.Publisher, tasks []taskstate.Task) error {
	return publish(ctx, trace.SpanFromContext(ctx).TracerProvider().Tracer(tracerName), p, tasks)
}

// publish is Publish with a tracer of its own, for loops that serve no request.
func publish(ctx context.Context, tracer trace.Tracer, p ingestq.Publisher, tasks []taskstate.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	envelopes := make([]*pb.TaskEnvelope, len(tasks))
	for i, t := range tasks {
		envelopes[i] = ingestq.DeliveryOf(t)
	}
	err := traced(ctx, tracer, p, envelopes, func(ctx context.Context) ([]string, error) { return p.Publish(ctx, envelopes) })
	if err != nil {
		return fmt.Errorf("publish %d tasks: %w", len(tasks), err)
	}
	return nil
}

// DestinationOf says in a trace which queue carries tasks of a type, as far as the queue tells.
func DestinationOf(p any, taskType string) []attribute.KeyValue {
	d, ok := p.(ingestq.Described)
	if !ok {
		return nil
	}
	system, name := d.Destination(taskType)
	return []attribute.KeyValue{
		attribute.String("messaging.system", system), attribute.String("messaging.destination.name", name),
	}
}

// SpanName is an operation and the queue that it is about, as the conventions have it: few names, whatever runs.
func SpanName(operation string, destination []attribute.KeyValue) string {
	for _, kv := range destination {
		if kv.Key == "messaging.destination.name" {
			return operation + " " + kv.Value.AsString()
		}
	}
	return operation
}

// traced calls send within a producer span. The span stands below the request that is being served;
// one of a loop stands below its only message, or links to its many.
func traced(ctx context.Context, tracer trace.Tracer, p any, es []*pb.TaskEnvelope, send func(context.Context) ([]string, error)) error {
	if len(es) == 1 && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = telemetry.WithTraceparent(ctx, es[0].GetContext().GetTraceparent())
	}
	destination := DestinationOf(p, es[0].GetType()) // where a batch has several types, that of its first task
	ctx, span := tracer.Start(ctx, SpanName("send", destination), trace.WithSpanKind(trace.SpanKindProducer))
	defer span.End()
	ids, err := send(ctx)
	if !span.IsRecording() {
		return err
	}
	attrs := append(destination,
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
	FailSpan(span, err)
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

// FailSpan marks a span as failed, without secrets.
func FailSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetStatus(codes.Error, taskstate.Shorten(telemetry.Redact(err.Error()), taskstate.MaxErrorChars))
	}
}
