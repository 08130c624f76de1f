package ingestq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

// A delivery says what its row says, and survives its own wire.
func TestEnvelopeIsTheRow(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 22, 8, 0, 0, 123456000, time.UTC)
	task := taskstate.Task{
		ID: "task", UserID: "anna", DocumentID: "doc", FilePath: "stored/a.pdf", WorkflowID: "w", Type: "document", Channel: "http", ChatID: "c",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", IdempotencyKey: "key", Status: taskstate.StatusQueued, RequestID: "req-1",
		AttemptCount: 2, MaxAttempts: 10, Payload: []byte(`{"n":1}`), CreatedAt: made, UpdatedAt: made.Add(time.Second),
	}
	e := ingestq.EnvelopeOf(task)
	require.Nil(t, e.GetRetry().GetNextAttemptAt(), "no time is left out, not year one")
	body, err := pb.Encode(e)
	require.NoError(t, err)
	back, err := pb.Decode(body)
	require.NoError(t, err)
	require.EqualValues(t, 1, back.GetSchemaVersion())
	require.Equal(t, []string{"task", "anna", "doc", "stored/a.pdf", "w", "document", "http", "c", "key", "QUEUED"}, []string{
		back.GetTaskId(), back.GetUserId(), back.GetDocumentId(), back.GetFilePath(), back.GetWorkflowId(), back.GetType(), back.GetChannel(),
		back.GetChatId(), back.GetIdempotencyKey(), back.GetStatus(),
	})
	require.EqualValues(t, 2, back.GetRetry().GetCount())
	require.EqualValues(t, 10, back.GetRetry().GetMax())
	require.Equal(t, task.TraceParent, back.GetContext().GetTraceparent())
	require.Equal(t, "req-1", back.GetContext().GetRequestId())
	require.Equal(t, made, back.GetCreatedAt().AsTime())
	require.EqualValues(t, 1, back.GetPayload().GetStructValue().GetFields()["n"].GetNumberValue())
	task.NextRetryAt = made.Add(time.Minute)
	require.Equal(t, task.NextRetryAt, ingestq.EnvelopeOf(task).GetRetry().GetNextAttemptAt().AsTime())
	task.Payload = []byte("no JSON")
	require.Nil(t, ingestq.EnvelopeOf(task).GetPayload().GetStructValue(), "the row has it")
}

// A delivery on Redis has what finds the row and its trace, and what other readers are enqueued; the rest is in the row.
func TestDeliverySaysWhatItsReaderNeeds(t *testing.T) {
	t.Parallel()
	e := ingestq.DeliveryOf(taskstate.Task{
		ID: "task", UserID: "anna", DocumentID: "doc", FilePath: "stored/a.pdf", Type: "document", Channel: "http", IdempotencyKey: "key",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", RequestID: "req-1", Payload: []byte(`{"n":1}`),
		Status: taskstate.StatusQueued, MaxAttempts: 10, CreatedAt: time.Now(),
	})
	fields, err := pb.EncodeFields(e)
	require.NoError(t, err)
	got := map[string]string{}
	for _, f := range fields {
		got[f.Name] = f.Value
	}
	require.JSONEq(t, `{"requestId":"req-1","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","user":"anna"}`, got["context"])
	delete(got, "context")
	require.Equal(t, map[string]string{
		"schemaVersion": "1", "taskId": "task", "type": "document", "source": "millweir", "userId": "anna", "documentId": "doc",
		"filePath": "stored/a.pdf",
	}, got)
	back, err := pb.DecodeFields(got)
	require.NoError(t, err, "what is missing is no error")
	require.Equal(t, "task", back.GetTaskId())
}
