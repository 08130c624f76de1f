package taskrun

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

const (
	schemaVersion  = 1 // of the envelope (contract §5)
	envelopeSource = "millweir"
)

// Envelope is the body of a delivery for a task, out of its row.
// A payload that is not JSON is left out: the row has it.
func Envelope(t taskstate.Task) *pb.TaskEnvelope {
	e := &pb.TaskEnvelope{
		SchemaVersion: schemaVersion, TaskId: t.ID, Type: t.Type, WorkflowId: t.WorkflowID, Source: envelopeSource,
		Channel: t.Channel, ChatId: t.ChatID, UserId: t.UserID, DocumentId: t.DocumentID, FilePath: t.FilePath,
		Context:        &pb.TaskContext{Traceparent: t.TraceParent, User: t.UserID},
		IdempotencyKey: t.IdempotencyKey, Status: string(t.Status),
		Retry:     &pb.TaskRetry{Count: int32(t.AttemptCount), Max: int32(t.MaxAttempts), NextAttemptAt: stamp(t.NextRetryAt)},
		CreatedAt: stamp(t.CreatedAt), UpdatedAt: stamp(t.UpdatedAt),
	}
	if len(t.Payload) > 0 {
		e.Payload = pb.Payload(t.Payload)
	}
	return e
}

// stamp is t for the wire; the zero time is left out.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

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
		envelopes[i] = Envelope(t)
	}
	err := traced(ctx, tracer, p, envelopes, func(ctx context.Context) ([]string, error) { return p.Publish(ctx, envelopes) })
	if err != nil {
		return fmt.Errorf("publish %d tasks: %w", len(tasks), err)
	}
	return nil
}
