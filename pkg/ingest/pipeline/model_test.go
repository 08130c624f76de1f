package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

var operator = ingest.Caller{Scope: taskstate.Scope{UserID: "root", Role: taskstate.RoleOperator}}

// What is configured does not serve the base: its documents wait for a person, and nothing is paid for, lost or counted meanwhile.
func TestABaseOfAnotherModelWaitsForAPerson(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]ingest.Model{
		"another model":     {Key: "other", Dim: 8},
		"another dimension": {Key: "hash/1", Dim: 5},
		// Nobody has called the service since the start.
		"a dimension that its first vector tells": {Key: "hash/1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
				first := w.Upload("one\n")
				require.Equal(t, taskstate.StatusSucceeded, w.Process(first.Task.ID).Status)
				mine := w.Embed.Model_
				w.Embed.Model_ = other
				if other.Dim == 0 {
					w.Embed.Size = 5
				}
				fresh := w.Upload("two\n")
				renewed := w.Accept(ingest.Upload{File: w.Receive("b.txt", "one and a half\n"), DocumentID: first.Document.ID})
				held := func(id string) {
					t.Helper()
					task := w.Process(id)
					require.Equal(t, taskstate.StatusSuspended, task.Status, task.LastError)
					require.Equal(t, string(ingest.CodeDimension), task.ErrorCode)
					require.Contains(t, task.LastError, "the knowledge base was made with model hash/1 (8 dimensions), not ")
					require.Contains(t, task.ErrorMessage, task.LastError)
					require.Contains(t, task.ErrorMessage, "EMBEDDING_PREVIOUS_MODEL")
					require.Contains(t, task.ErrorMessage, "resume")
					require.Zero(t, task.AttemptCount)
					require.True(t, task.NextRetryAt.IsZero())
					require.Equal(t, taskstate.DLQNone, task.DLQ)
					log, err := w.Store.Transitions(t.Context(), taskstate.System(), id, 0, 100)
					require.NoError(t, err)
					last := log[len(log)-1]
					require.Equal(t, taskstate.ReasonSuspended, last.Reason)
					require.Equal(t, task.LastError, last.Message)
					require.Equal(t, task.ErrorCode, last.ErrorCode)
					w.CheckInvariants()
				}
				held(fresh.Task.ID)
				held(renewed.Task.ID)
				if other.Dim != 0 {
					require.Zero(t, w.Embed.Paid["two"], "known before anything is paid for")
				}
				require.Equal(t, 1, w.VectorCount())
				require.Equal(t, ingest.DocumentProcessing, w.Document(fresh.Document.ID).Status, "it has not failed")
				require.Equal(t, ingest.DocumentReady, w.Document(first.Document.ID).Status)
				page, err := ingesttest.NewReadWorld(t, w).Reads.Tasks(t.Context(), w.Caller, taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusSuspended}, Limit: 10})
				require.NoError(t, err)
				require.Len(t, page.Tasks, 2)

				var refused *taskstate.RefusedError
				_, err = w.App.Retry(t.Context(), w.Caller, fresh.Task.ID)
				require.ErrorAs(t, err, &refused)
				require.Equal(t, taskstate.CodeSuspended, refused.Code)
				w.SweepAll()
				w.CheckInvariants()
				_, err = w.App.Resume(t.Context(), operator, fresh.Task.ID, "too early")
				require.NoError(t, err)
				require.Equal(t, ingest.DocumentQueued, w.Document(fresh.Document.ID).Status)
				held(fresh.Task.ID)

				w.Embed.Model_, w.Embed.Size = mine, 0
				require.Equal(t, []string{"one"}, w.Text(first.Document.ID))
				for _, a := range []ingest.Accepted{fresh, renewed} {
					task, err := w.App.Resume(t.Context(), operator, a.Task.ID, "the model is back")
					require.NoError(t, err)
					require.Empty(t, task.ErrorCode)
					require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
				}
				require.Equal(t, []string{"two"}, w.Text(fresh.Document.ID))
				require.EqualValues(t, 1, w.Document(fresh.Document.ID).VisibleNo, "the version that waited")
				require.Equal(t, []string{"one and a half"}, w.Text(first.Document.ID))
				w.SweepAll()
				require.Equal(t, 2, w.VectorCount())
				w.CheckInvariants()
			})
		})
	}
}

// A service that refuses the model or the key serves no document: they wait for whoever mends the settings, as one that was refused
// itself does not.
func TestAModelThatTheServiceRefusesWaitsForAPerson(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		w.Embed.Fail = func([]string) error {
			return ingest.Suspended(ingest.CodeModelUnusable, "Check EMBEDDING_MODEL.", "POST http://h/embeddings: 404 Not Found: the model m does not exist")
		}
		a := w.Upload("one\n")
		task := w.Process(a.Task.ID)
		require.Equal(t, taskstate.StatusSuspended, task.Status)
		require.Equal(t, string(ingest.CodeModelUnusable), task.ErrorCode)
		require.Equal(t, "embed batch 1/1: POST http://h/embeddings: 404 Not Found: the model m does not exist", task.LastError)
		require.Contains(t, task.ErrorMessage, "Check EMBEDDING_MODEL.")
		require.Zero(t, task.AttemptCount)
		require.Equal(t, ingest.DocumentProcessing, w.Document(a.Document.ID).Status)
		w.CheckInvariants()
		w.Embed.Fail = nil
		_, err := w.App.Resume(t.Context(), operator, a.Task.ID, "mended")
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
		require.Equal(t, []string{"one"}, w.Text(a.Document.ID))
		w.CheckInvariants()
	})
}

// The base's record and the model agree, and the store refuses the vectors: that is no want of a model, and stays a wrong dimension,
// DEAD at once, which its user tries again once the collection is mended.
func TestAVectorThatTheStoreRefusesIsDead(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Vectors.Fail = func(string) error {
		return ingest.Permanent(ingest.CodeDimension, "", "8 values, the collection has 7")
	}
	task := w.Process(w.Upload("one\n").Task.ID)
	require.Equal(t, taskstate.StatusDead, task.Status)
	require.Equal(t, string(ingest.CodeDimension), task.ErrorCode)
	require.Equal(t, 1, task.AttemptCount)
}
