package pipeline_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// ran processes an upload once, up to its finish, and counts.
func ran(w *ingesttest.World, s ingesttest.MeteredStore, a ingest.Accepted) (calls, statements map[string]int) {
	w.T.Helper()
	s.Reset()
	job, answer := w.Claim(a.Task.ID)
	require.Equal(w.T, taskstate.AnswerClaimed, answer)
	kind := metered(w, s)
	res := kind.Handle(w.T.Context(), job)
	require.NoError(w.T, res.Err)
	_, err := w.Finish(w.T.Context(), job, res)
	require.NoError(w.T, err)
	return s.Calls, s.Statements
}

// metered is the world's worker over a store that counts.
func metered(w *ingesttest.World, s ingesttest.MeteredStore) *pipeline.Worker {
	w.T.Helper()
	deps := w.Deps
	deps.Store = s
	cfg := w.Config
	cfg.EmbedParallel = 1
	app, err := app.New(deps, w.Files, cfg)
	require.NoError(w.T, err)
	kind, err := app.Worker()
	require.NoError(w.T, err)
	return kind
}

// What a document costs the database: not a statement more than these, from its claim to its finish.
func TestStatementsOfADocument(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Embed.Batch = 64
	s := ingesttest.MeteredStore{Database: w.Store, Calls: map[string]int{}, Statements: map[string]int{}, Mu: &sync.Mutex{}}
	ran(w, s, w.Upload(ingesttest.Lines(20, 1))) // it also says which model the base has

	// One batch of everything.
	a := w.Upload(ingesttest.Lines(20, 2))
	calls, statements := ran(w, s, a)
	require.Equal(t, map[string]int{"read": 3, "tx": 1, "hold": 1}, calls, "its work, the ledger, its rows read back; ledger; rows")
	require.Equal(t, map[string]int{"read": 3, "tx": 1, "hold": 5}, statements, "documents, versions, rows, their words, what they are made of")

	// A second version also reads what is visible.
	again := w.Accept(ingest.Upload{File: w.Receive("a.txt", ingesttest.Lines(20, 2)+"one more\n"), DocumentID: a.Document.ID})
	calls, statements = ran(w, s, again)
	require.Equal(t, map[string]int{"read": 5, "tx": 1, "hold": 1}, calls)
	require.Equal(t, map[string]int{"read": 5, "tx": 1, "hold": 5}, statements)

	// A long one: five batches of embeddings, and as many of vectors less the last are marked.
	calls, statements = ran(w, s, w.Upload(ingesttest.Lines(1000, 3)))
	const batches, rowTx, marks = 16, 2, 4
	require.Equal(t, map[string]int{"read": 4, "tx": batches, "hold": rowTx + marks}, calls, "the ledger is asked twice")
	require.Equal(t, map[string]int{"read": 4, "tx": batches, "hold": 4*rowTx + 1 + marks}, statements, fmt.Sprint(calls))
}

// Documents in work side by side share their looks, the embedding cache's commits and the transactions of their rows.
// In the bubble's time all that can come while a call is under way do, so no chance decides how many share.
func TestStatementsOfDocumentsSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := ingesttest.NewWorld(t, ingesttest.Options{})
		w.Embed.Batch = 64
		s := ingesttest.MeteredStore{Database: w.Store, Calls: map[string]int{}, Statements: map[string]int{}, Mu: &sync.Mutex{}}
		ran(w, s, w.Upload(ingesttest.Lines(20, 1))) // it also says which model the base has
		const documents = 16
		s.Takes = time.Second
		kind := metered(w, s)
		jobs := make([]taskrun.Job, documents)
		for i := range jobs {
			a := w.Upload(ingesttest.Lines(20, uint64(10+i)))
			jobs[i], _ = w.Claim(a.Task.ID)
		}
		s.Reset()
		results := make([]taskrun.Result, documents)
		var wg sync.WaitGroup
		for i, job := range jobs {
			wg.Go(func() { results[i] = kind.Handle(t.Context(), job) })
		}
		wg.Wait()
		for i, res := range results {
			require.NoError(t, res.Err)
			_, err := w.Finish(t.Context(), jobs[i], res)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusSucceeded, w.Task(jobs[i].Task.ID).Status)
		}
		t.Log(s.Calls, s.Statements)
		// Alone they would be 16 of each, 48 reads and 64 statements of holders.
		require.LessOrEqual(t, s.Calls["hold"], 8, "%v", s.Calls)
		require.LessOrEqual(t, s.Calls["tx"], 12, "%v", s.Calls)
		require.LessOrEqual(t, s.Calls["read"], 28, "%v", s.Calls)
		require.LessOrEqual(t, s.Statements["hold"], 32, "%v", s.Statements)
	})
}

// The first documents of a base come to its model together: one transaction sets it, and its first wish decides.
func TestTheFirstWishDecidesTheModelOfABase(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	s := ingesttest.MeteredStore{Database: w.Store, Calls: map[string]int{}, Statements: map[string]int{}, Mu: &sync.Mutex{}}
	kind := metered(w, s)
	bases := make([]string, 2)
	for i, name := range []string{"first", "second"} {
		base, err := w.App.CreateBase(t.Context(), w.Caller, name, ingest.BaseSettings{})
		require.NoError(t, err)
		bases[i] = base.ID
	}
	s.Reset()
	one, other := ingest.Model{Key: "one", Dim: 8}, ingest.Model{Key: "other", Dim: 5}
	asked := []string{bases[0], bases[1], bases[0], bases[0]}
	got, errs := kind.Agree(t.Context(), asked, []ingest.Model{one, other, other, one})
	require.Equal(t, make([]error, len(asked)), errs)
	require.Equal(t, []ingest.Model{one, other, one, one}, got)
	require.Equal(t, map[string]int{"tx": 1}, s.Calls)
	got, errs = kind.Agree(t.Context(), bases[:1], []ingest.Model{other})
	require.NoError(t, errs[0])
	require.Equal(t, []ingest.Model{one}, got, "it has a model by now")
	_, errs = kind.Agree(t.Context(), []string{"no such base", bases[1]}, []ingest.Model{one, one})
	require.Error(t, errs[0])
	require.NoError(t, errs[1], "one base that is gone fails alone")
}
