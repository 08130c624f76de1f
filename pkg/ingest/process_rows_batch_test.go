package ingest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// beforeRows takes a task's run as far as its rows.
func (w *world) beforeRows(id string) *run {
	w.t.Helper()
	job, answer := w.claim(id)
	require.Equal(w.t, taskstate.AnswerClaimed, answer)
	r := &run{a: w.app, w: w.handler, job: job, vectors: newVectorCache(&w.handler.cached), arrived: true}
	w.t.Cleanup(r.close)
	reason, err := r.load(w.t.Context())
	require.NoError(w.t, err)
	require.Equal(w.t, taskstate.ReasonDone, reason)
	require.NoError(w.t, r.read(w.t.Context()))
	require.NoError(w.t, r.makePlan(w.t.Context()))
	require.NoError(w.t, r.embedMissing(w.t.Context()))
	require.NoError(w.t, r.agreeOnModel(w.t.Context()))
	return r
}

// rowsOf is all of a run's rows as one part.
func rowsOf(t *testing.T, r *run) *rowTask {
	t.Helper()
	w := &rowWriter{r: r, plan: r.plan}
	n := len(r.plan.items)
	rows, err := w.load(0, n)
	require.NoError(t, err)
	return &rowTask{w: w, first: true, to: n, bytes: 100, rows: rows}
}

// Of the documents that share a transaction each goes its own way: one that lost its claim, was deleted or must plan again
// has written nothing, and the others are whole.
func TestRowsOfSeveralDocumentsInOneTransaction(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		again := w.upload("same\nother\n")
		w.process(again.Task.ID)
		second := w.accept(Upload{File: w.receive("a.txt", "same\nnew\n"), DocumentID: again.Document.ID})
		third := w.accept(Upload{File: w.receive("a.txt", "without it\n"), DocumentID: again.Document.ID})
		uploads := []Accepted{w.upload("a\nb\nc\n"), w.upload("lost\n"), w.upload("deleted\n"), w.upload("d\ne\n"), second}
		var tasks []*rowTask
		for _, a := range uploads {
			tasks = append(tasks, rowsOf(t, w.beforeRows(a.Task.ID)))
		}
		tasks[1].w.r.job.Token.Fence--
		// The deletion also cancels the task: only its row is made a tombstone here, as one is that the run's claim does not know of.
		w.exec(`UPDATE knowledge_document SET deleted_at = updated_at WHERE id = ?`, uploads[2].Document.ID)
		// What the second version wants to use again is not of the version any more that is visible now.
		w.process(third.Task.ID)
		w.exec(`UPDATE knowledge_document SET visible_upload_no = 0 WHERE id = ?`, again.Document.ID)

		for _, err := range w.app.rows.Do(t.Context(), tasks...) {
			require.NoError(t, err)
		}
		require.NoError(t, tasks[0].err)
		require.Equal(t, taskstate.ReasonDone, tasks[0].reason)
		require.ErrorIs(t, tasks[1].err, taskstate.ErrLost)
		require.Equal(t, taskstate.ReasonDeleted, tasks[2].reason)
		require.NoError(t, tasks[3].err)
		require.ErrorIs(t, tasks[4].err, errReplan)
		for i, n := range []int{3, 0, 0, 2, 0} {
			version := tasks[i].w.r.work.version
			require.Equal(t, n, w.number(`SELECT COUNT(*) FROM knowledge_segment WHERE version_id = ?`, version), i)
			require.Equal(t, n, w.number(`SELECT segment_count FROM document_version WHERE id = ?`, version), i)
		}
		for i, a := range []Accepted{uploads[0], uploads[3]} {
			require.Equal(t, taskstate.StatusSucceeded, w.recover(a.Task.ID).Status, i)
		}
		require.Equal(t, []string{"a", "b", "c"}, w.text(uploads[0].Document.ID))
	})
}

// A transaction has at most so many rows; what does not fit leads the next one.
func TestRowTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	metered := meteredStore{Store: w.store, calls: map[string]int{}, statements: map[string]int{}, mu: &sync.Mutex{}}
	w.build(worldOptions{deps: func(d *Deps) { d.Store = metered }})
	w.embed.batch = 200
	var tasks []*rowTask
	for i := range 4 {
		a := w.upload(lines(rowsPerTx/2-i, uint64(i+1)))
		tasks = append(tasks, rowsOf(t, w.beforeRows(a.Task.ID)))
	}
	metered.reset()
	for _, err := range w.app.rows.Do(t.Context(), tasks...) {
		require.NoError(t, err)
	}
	require.Equal(t, 2, metered.calls["hold"], "two documents fit")
	for _, task := range tasks {
		require.NoError(t, task.err)
		require.Equal(t, task.to, w.number(`SELECT COUNT(*) FROM knowledge_segment WHERE version_id = ?`, task.w.r.work.version))
	}
}
