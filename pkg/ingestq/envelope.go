package ingestq

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

const (
	schemaVersion  = 1 // of the envelope (contract §5)
	envelopeSource = "millweir"
)

// EnvelopeOf is the body of a delivery for a task, out of its row.
// A payload that is not JSON is left out: the row has it.
func EnvelopeOf(t taskstate.Task) *pb.TaskEnvelope {
	e := &pb.TaskEnvelope{
		SchemaVersion: schemaVersion, TaskId: t.ID, Type: t.Type, WorkflowId: t.WorkflowID, Source: envelopeSource,
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
