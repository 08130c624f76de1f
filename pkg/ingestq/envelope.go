package ingestq

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

const envelopeSource = "millweir"

// DeliveryOf is the body of a delivery on Redis, out of its row: what a worker needs to find the row and its trace, and what
// contract §5 enqueues to other readers. All else is in the row.
func DeliveryOf(t taskstate.Task) *pb.TaskEnvelope {
	return &pb.TaskEnvelope{
		SchemaVersion: pb.SchemaVersion, TaskId: t.ID, Type: t.Type, Source: envelopeSource, UserId: t.UserID, DocumentId: t.DocumentID,
		FilePath: t.FilePath, Context: &pb.TaskContext{RequestId: t.RequestID, Traceparent: t.TraceParent, User: t.UserID},
	}
}

// EnvelopeOf is the whole envelope of a task, out of its row: for where other programs read it (Kafka topics).
// A payload that is not JSON is left out: the row has it.
func EnvelopeOf(t taskstate.Task) *pb.TaskEnvelope {
	e := &pb.TaskEnvelope{
		SchemaVersion: pb.SchemaVersion, TaskId: t.ID, Type: t.Type, WorkflowId: t.WorkflowID, Source: envelopeSource,
		Channel: t.Channel, ChatId: t.ChatID, UserId: t.UserID, DocumentId: t.DocumentID, FilePath: t.FilePath,
		Context:        &pb.TaskContext{RequestId: t.RequestID, Traceparent: t.TraceParent, User: t.UserID},
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
