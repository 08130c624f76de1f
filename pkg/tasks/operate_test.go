package tasks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestReplayAfterDeath(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		w.Embed.Fail = func([]string) error {
			return ingest.Permanent(ingest.CodeEmbedRejected, "Shorten it.", "text 1 is refused")
		}
		a := w.Upload("one\ntwo\n")
		dead := w.Process(a.Task.ID)
		require.Equal(t, taskstate.StatusDead, dead.Status)
		require.Equal(t, "embed batch 1/1: text 1 is refused", dead.LastError)
		require.Contains(t, dead.ErrorMessage, "Shorten it.")
		require.Equal(t, string(ingest.CodeEmbedRejected), dead.ErrorCode)
		require.Equal(t, ingest.DocumentFailed, w.Document(a.Document.ID).Status)

		w.Embed.Fail = nil
		again, err := w.App.Retry(t.Context(), w.Caller, a.Task.ID)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusQueued, again.Status)
		require.Zero(t, again.AttemptCount)
		require.Equal(t, ingest.DocumentQueued, w.Document(a.Document.ID).Status)
		require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
		require.Equal(t, []string{"one", "two"}, w.Text(a.Document.ID))
		d := w.Document(a.Document.ID)
		require.EqualValues(t, 2, d.VisibleNo)
		require.EqualValues(t, 1, d.VisibleUpload, "a replay keeps the upload's number")
		w.CheckInvariants()
	})
}

func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		a := w.Upload("!corrupt\n")
		w.Process(a.Task.ID)
		b := w.Accept(ingest.Upload{File: w.Receive("a.txt", "good\n"), DocumentID: a.Document.ID})
		w.Process(b.Task.ID)
		_, err := w.App.Retry(t.Context(), w.Caller, a.Task.ID)
		require.ErrorIs(t, err, ingest.ErrReplaySuperseded)
		before := w.Number("SELECT COUNT(*) FROM ingest_task_transition")
		refusals, err := w.App.Refusals(t.Context(), w.Caller.Scope, []string{a.Task.ID, b.Task.ID, ingest.NewID()})
		require.NoError(t, err)
		require.Len(t, refusals, 2, "what does not exist is not refused")
		require.ErrorIs(t, refusals[a.Task.ID], ingest.ErrReplaySuperseded)
		var state *taskstate.RefusedError
		require.ErrorAs(t, refusals[b.Task.ID], &state)
		require.Equal(t, before, w.Number("SELECT COUNT(*) FROM ingest_task_transition"), "nothing changed")

		gone := w.Upload("!corrupt\nagain\n")
		w.Process(gone.Task.ID)
		refusals, err = w.App.Refusals(t.Context(), w.Caller.Scope, []string{gone.Task.ID})
		require.NoError(t, err)
		require.Empty(t, refusals)
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, gone.Document.ID))
		_, err = w.App.Retry(t.Context(), w.Caller, gone.Task.ID)
		require.ErrorIs(t, err, ingest.ErrDocumentDeleted)
		w.SweepAll()
		_, err = w.App.Retry(t.Context(), w.Caller, gone.Task.ID)
		require.ErrorIs(t, err, ingest.ErrDocumentDeleted, "also when nothing is left of it")

		var refused *taskstate.RefusedError
		_, err = w.App.Retry(t.Context(), w.Caller, b.Task.ID)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, taskstate.CodeNotReplayable, refused.Code)
		_, err = w.App.Retry(t.Context(), w.Caller, ingest.NewID())
		require.ErrorIs(t, err, taskstate.ErrNotFound)
		bob := w.Caller
		bob.Scope.UserID = "bob"
		_, err = w.App.Cancel(t.Context(), bob, a.Task.ID)
		require.ErrorIs(t, err, taskstate.ErrNotFound, "foreign")
	})
}

func TestAFailedSecondUploadKeepsTheFirst(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		a := w.Upload("one\n")
		w.Process(a.Task.ID)
		b := w.Accept(ingest.Upload{File: w.Receive("b.txt", "!corrupt\n"), DocumentID: a.Document.ID})
		require.Equal(t, taskstate.StatusDead, w.Process(b.Task.ID).Status)
		d := w.Document(a.Document.ID)
		require.Equal(t, ingest.DocumentReady, d.Status)
		require.Equal(t, b.Task.ID, d.LatestTask)
		require.Equal(t, []string{"one"}, w.Text(a.Document.ID))
		w.SweepAll()
		require.Equal(t, []string{"one"}, w.Text(a.Document.ID))
	})
}

func TestSuspendAndResumeGoOnWithTheSameVersion(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	operator := ingest.Caller{Scope: taskstate.Scope{UserID: "root", Role: taskstate.RoleOperator}}
	a := w.Upload("one\n")
	job, _ := w.Claim(a.Task.ID)
	require.Equal(t, ingest.DocumentProcessing, w.Document(a.Document.ID).Status)
	_, err := w.App.Suspend(t.Context(), operator, a.Task.ID, "look at it")
	require.NoError(t, err)
	res := w.Handler.Handle(t.Context(), job)
	require.ErrorIs(t, res.Err, taskstate.ErrLost, "the holder learns it at its next write")
	_, err = w.App.Resume(t.Context(), operator, a.Task.ID, "fine")
	require.NoError(t, err)
	require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
	require.EqualValues(t, 1, w.Document(a.Document.ID).VisibleNo)
}

func TestALaterVisibleUploadCancelsOlderOnes(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		first := w.Upload("one\n")
		second := w.Accept(ingest.Upload{File: w.Receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		require.Equal(t, taskstate.StatusQueued, w.Task(first.Task.ID).Status, "not when it is accepted")
		w.Process(second.Task.ID)
		_, err := w.App.Sweep(t.Context())
		require.NoError(t, err)
		task := w.Task(first.Task.ID)
		require.Equal(t, taskstate.StatusCancelled, task.Status)
		log, err := w.Store.Transitions(t.Context(), taskstate.System(), first.Task.ID, 0, 10)
		require.NoError(t, err)
		require.Equal(t, taskstate.ReasonSuperseded, log[len(log)-1].Reason)
		require.Equal(t, []string{"two"}, w.Text(first.Document.ID))
		w.CheckInvariants()
	})
}

func TestAReplayOfAnOlderUploadDoesNotReplaceALaterOne(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		w.Embed.Fail = func([]string) error { return ingest.Permanent(ingest.CodeEmbedRejected, "", "no") }
		first := w.Upload("one\n")
		require.Equal(t, taskstate.StatusDead, w.Process(first.Task.ID).Status)
		w.Embed.Fail = nil
		second := w.Accept(ingest.Upload{File: w.Receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		_, err := w.App.Retry(t.Context(), w.Caller, first.Task.ID) // version 3 holds the bytes of upload 1
		require.NoError(t, err)
		job, _ := w.Claim(first.Task.ID)
		res := w.Handler.Handle(t.Context(), job)
		require.NoError(t, res.Err)
		w.Process(second.Task.ID)
		out, err := w.Finish(t.Context(), job, res)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusCancelled, out.After.Status)
		require.Equal(t, []string{"two"}, w.Text(first.Document.ID))
	})
}
