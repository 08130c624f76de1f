package pipeline_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestFinishCountsTheRows(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		a := w.Upload("one\ntwo\nthree\n")
		for _, damage := range []string{
			"DELETE FROM knowledge_segment WHERE segment_index = 2",
			"UPDATE knowledge_segment SET segment_index = 7 WHERE segment_index = 2",
		} {
			job, _ := w.Claim(a.Task.ID)
			res := w.Handler.Handle(t.Context(), job)
			require.NoError(t, res.Err)
			w.Exec(damage)
			out, err := w.Finish(t.Context(), job, res)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusRetrying, out.After.Status)
			require.Contains(t, out.After.LastError, "finish: ")
			require.Empty(t, w.Text(a.Document.ID))
			w.Advance(time.Hour)
		}
		require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
		require.Equal(t, []string{"one", "two", "three"}, w.Text(a.Document.ID))
	})
}

func TestEmbeddingsThatTheEmbeddingCacheLostArePaidForAgain(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Calm()
	a := w.Upload("one\ntwo\n")
	w.RunWith(a.Task.ID, &ingesttest.Faults{At: 5, Mode: ingesttest.CrashBefore}) // embed, embedding cache, model, rows; then the vectors
	require.Zero(t, w.VectorCount())
	w.Clock.Advance(time.Hour)
	f := &ingesttest.Faults{At: 1, Mode: ingesttest.Interrupted, Hook: func() { w.Exec("DELETE FROM embedding_ledger") }}
	w.RunWith(a.Task.ID, f)
	require.True(t, f.Hit)
	require.Equal(t, []string{"one", "two"}, w.Text(a.Document.ID))
	require.Equal(t, 2, w.Embed.Paid["one"])
}

func TestAStoppedProcessFinishesItsLeaseLater(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	job, _ := w.Claim(a.Task.ID)
	old := w.Handler.Handle(t.Context(), job)
	require.NoError(t, old.Err)
	w.Clock.Advance(time.Hour)
	require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
	out, err := w.Finish(t.Context(), job, old)
	require.NoError(t, err)
	require.Equal(t, taskstate.AnswerLost, out.Answer, "the zombie's finish changes nothing")
	require.Equal(t, []string{"one"}, w.Text(a.Document.ID))
}
