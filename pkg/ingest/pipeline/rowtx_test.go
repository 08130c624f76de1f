package pipeline_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/taskstate"
)

// beforeRows takes a task's run as far as its rows.
func beforeRows(w *ingesttest.World, id string) *pipeline.Run {
	w.T.Helper()
	job, answer := w.Claim(id)
	require.Equal(w.T, taskstate.AnswerClaimed, answer)
	r, err := w.Handler.BeforeRows(w.T.Context(), job)
	require.NoError(w.T, err)
	w.T.Cleanup(r.Close)
	return r
}

// rowsOf is all of a run's rows as one part.
func rowsOf(t *testing.T, r *pipeline.Run) *pipeline.RowTask {
	t.Helper()
	rows, err := r.AllRows()
	require.NoError(t, err)
	return rows
}

// Of the documents that share a transaction each goes its own way: one that lost its claim, was deleted or must plan again
// has written nothing, and the others are whole.
func TestRowsOfSeveralDocumentsInOneTransaction(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		again := w.Upload("same\nother\n")
		w.Process(again.Task.ID)
		second := w.Accept(ingest.Upload{File: w.Receive("a.txt", "same\nnew\n"), DocumentID: again.Document.ID})
		third := w.Accept(ingest.Upload{File: w.Receive("a.txt", "without it\n"), DocumentID: again.Document.ID})
		uploads := []ingest.Accepted{w.Upload("a\nb\nc\n"), w.Upload("lost\n"), w.Upload("deleted\n"), w.Upload("d\ne\n"), second}
		var tasks []*pipeline.RowTask
		for _, a := range uploads {
			tasks = append(tasks, rowsOf(t, beforeRows(w, a.Task.ID)))
		}
		tasks[1].LoseClaim()
		// The deletion also cancels the task: only its row is made a tombstone here, as one is that the run's claim does not know of.
		w.Exec(`UPDATE knowledge_document SET deleted_at = updated_at WHERE id = ?`, uploads[2].Document.ID)
		// What the second version wants to use again is not of the version any more that is visible now.
		w.Process(third.Task.ID)
		w.Exec(`UPDATE knowledge_document SET visible_upload_no = 0 WHERE id = ?`, again.Document.ID)

		for _, err := range w.Handler.WriteTogether(t.Context(), tasks...) {
			require.NoError(t, err)
		}
		require.NoError(t, tasks[0].Err())
		require.Equal(t, taskstate.ReasonDone, tasks[0].Reason())
		require.ErrorIs(t, tasks[1].Err(), taskstate.ErrLost)
		require.Equal(t, taskstate.ReasonDeleted, tasks[2].Reason())
		require.NoError(t, tasks[3].Err())
		require.ErrorIs(t, tasks[4].Err(), pipeline.ErrReplan)
		for i, n := range []int{3, 0, 0, 2, 0} {
			version := tasks[i].Version()
			require.Equal(t, n, w.Number(`SELECT COUNT(*) FROM knowledge_segment WHERE version_id = ?`, version), i)
			require.Equal(t, n, w.Number(`SELECT segment_count FROM document_version WHERE id = ?`, version), i)
		}
		for i, a := range []ingest.Accepted{uploads[0], uploads[3]} {
			require.Equal(t, taskstate.StatusSucceeded, w.Recover(a.Task.ID).Status, i)
		}
		require.Equal(t, []string{"a", "b", "c"}, w.Text(uploads[0].Document.ID))
	})
}

// A transaction has at most so many rows; what does not fit leads the next one.
func TestRowTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	metered := ingesttest.MeteredStore{Database: w.Store, Calls: map[string]int{}, Statements: map[string]int{}, Mu: &sync.Mutex{}}
	w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Store = metered }})
	w.Embed.Batch = 200
	var tasks []*pipeline.RowTask
	for i := range 4 {
		a := w.Upload(ingesttest.Lines(pipeline.RowsPerTx/2-i, uint64(i+1)))
		tasks = append(tasks, rowsOf(t, beforeRows(w, a.Task.ID)))
	}
	metered.Reset()
	for _, err := range w.Handler.WriteTogether(t.Context(), tasks...) {
		require.NoError(t, err)
	}
	require.Equal(t, 2, metered.Calls["hold"], "two documents fit")
	for _, task := range tasks {
		require.NoError(t, task.Err())
		require.Equal(t, task.Len(), w.Number(`SELECT COUNT(*) FROM knowledge_segment WHERE version_id = ?`, task.Version()))
	}
}
