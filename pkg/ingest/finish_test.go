package ingest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// exec changes rows behind the application's back.
func (w *world) exec(query string, params ...any) {
	w.t.Helper()
	require.NoError(w.t, w.store.InTx(w.t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, query, params...)
		return err
	}))
}

func TestFinishCountsTheRows(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a := w.upload("one\ntwo\nthree\n")
		for _, damage := range []string{
			"DELETE FROM knowledge_segment WHERE segment_index = 2",
			"UPDATE knowledge_segment SET segment_index = 7 WHERE segment_index = 2",
		} {
			job, _ := w.claim(a.Task.ID)
			res := w.handler.Run(t.Context(), job)
			require.NoError(t, res.Err)
			w.exec(damage)
			out, err := w.finish(t.Context(), job, res)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusRetrying, out.After.Status)
			require.Contains(t, out.After.LastError, "finish: ")
			require.Empty(t, w.text(a.Document.ID))
			w.advance(time.Hour)
		}
		require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
		require.Equal(t, []string{"one", "two", "three"}, w.text(a.Document.ID))
	})
}

func TestEmbeddingsThatTheEmbeddingCacheLostArePaidForAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.calm()
	a := w.upload("one\ntwo\n")
	w.runWith(a.Task.ID, &faults{at: 5, mode: crashBefore}) // embed, embedding cache, model, rows; then the vectors
	require.Zero(t, w.vectorCount())
	w.clock.advance(time.Hour)
	f := &faults{at: 1, mode: interrupted, hook: func() { w.exec("DELETE FROM embedding_ledger") }}
	w.runWith(a.Task.ID, f)
	require.True(t, f.hit)
	require.Equal(t, []string{"one", "two"}, w.text(a.Document.ID))
	require.Equal(t, 2, w.embed.paid["one"])
}

func TestRunSweeperWakesForWhatThisProcessDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{config: func(c *Config) { c.SweepInterval = time.Hour }})
	a := w.upload("one\n")
	w.process(a.Task.ID)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.app.RunSweeper(ctx) }()
	require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID))
	require.Eventually(t, func() bool {
		left, err := w.vectors.List(t.Context(), a.Document.BaseID, 0, 10)
		return err == nil && len(left) == 0
	}, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

func TestAStoppedProcessFinishesItsLeaseLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("one\n")
	job, _ := w.claim(a.Task.ID)
	old := w.handler.Run(t.Context(), job)
	require.NoError(t, old.Err)
	w.clock.advance(time.Hour)
	require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
	out, err := w.finish(t.Context(), job, old)
	require.NoError(t, err)
	require.Equal(t, taskstate.AnswerLost, out.Answer, "the zombie's finish changes nothing")
	require.Equal(t, []string{"one"}, w.text(a.Document.ID))
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	_, err := New(w.app.d, Config{})
	require.ErrorContains(t, err, "UPLOAD_MAX_BYTES")
	require.ErrorContains(t, err, "INGEST_REDIS_MAX_ATTEMPTS")
	_, err = New(Deps{}, NewDefaultConfig())
	require.Error(t, err)
	deps := w.app.d
	deps.Extractor = nil
	app, err := New(deps, NewDefaultConfig())
	require.NoError(t, err)
	_, err = app.Kind()
	require.ErrorIs(t, err, ErrNoWorker)
}
