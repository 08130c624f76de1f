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

// TaskOf is the task that a whole envelope is of, as it was submitted: what EnvelopeOf leaves out is missing, and numbers of its payload
// have the precision of JavaScript.
func TaskOf(e *pb.TaskEnvelope) taskstate.Task {
	t := taskstate.Task{
		ID: e.GetTaskId(), UserID: e.GetUserId(), DocumentID: e.GetDocumentId(), FilePath: e.GetFilePath(), WorkflowID: e.GetWorkflowId(),
		Type: e.GetType(), Channel: e.GetChannel(), ChatID: e.GetChatId(), IdempotencyKey: e.GetIdempotencyKey(),
		MaxAttempts: int(e.GetRetry().GetMax()), TraceParent: e.GetContext().GetTraceparent(), RequestID: e.GetContext().GetRequestId(),
	}
	if p := e.GetPayload(); p != nil {
		t.Payload, _ = p.MarshalJSON() // a value that was decoded can be encoded
	}
	return t
}
