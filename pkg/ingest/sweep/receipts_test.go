package sweep_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
)

// aDayLater lets the time of receipts come.
func aDayLater(w *ingesttest.World) {
	w.T.Helper()
	w.Advance(26 * time.Hour)
	if w.Server { // whose clock nobody moves
		w.Exec("UPDATE document_deletion SET deleted_at = '2020-01-01 00:00:00', sweep_at = '2020-01-02 00:00:00' WHERE verified_at IS NULL")
	}
}

func receipt(w *ingesttest.World, document string) ingest.Deletion {
	w.T.Helper()
	d, err := w.App.Deletion(w.T.Context(), w.Caller, document)
	require.NoError(w.T, err)
	return d
}

func TestADeletionHasAReceipt(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		a, keep := w.Upload("zebra one\ntwo\n"), w.Upload("keep\n")
		w.Process(a.Task.ID)
		w.Process(keep.Task.ID)
		_, err := w.App.Deletion(t.Context(), w.Caller, a.Document.ID)
		require.ErrorIs(t, err, ingest.ErrNoDeletion)
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
		d := receipt(w, a.Document.ID)
		require.Equal(t, []any{a.Document.SHA256, int64(1), int64(0), "user:" + w.Caller.Scope.UserID}, []any{d.SHA256, d.Versions, d.Segments, d.By})
		require.False(t, d.DeletedAt.IsZero())
		require.True(t, d.RemovedAt.IsZero())
		bob := w.Caller
		bob.Scope.UserID = "bob"
		_, err = w.App.Deletion(t.Context(), bob, a.Document.ID)
		require.ErrorIs(t, err, ingest.ErrNoDeletion)

		w.SweepAll()
		d = receipt(w, a.Document.ID)
		require.Equal(t, []any{int64(2), int64(2), 1}, []any{d.Segments, d.Vectors, d.Files})
		require.False(t, d.RemovedAt.IsZero())
		require.True(t, d.VerifiedAt.IsZero(), "its words and embeddings are still there")
		found, err := w.App.Index.Search(t.Context(), a.Document.BaseID, "zebra", 10, nil)
		require.NoError(t, err)
		require.Len(t, found.Found, 1)

		aDayLater(w)
		w.Exec("UPDATE embedding_ledger SET used_at = '2020-01-01 00:00:00'")
		_, err = w.App.Sweep(t.Context())
		require.NoError(t, err)
		require.False(t, receipt(w, a.Document.ID).VerifiedAt.IsZero())
		found, err = w.App.Index.Search(t.Context(), a.Document.BaseID, "zebra", 10, nil)
		require.NoError(t, err)
		require.Empty(t, found.Found)
		found, err = w.App.Index.Search(t.Context(), a.Document.BaseID, "keep", 10, nil)
		require.NoError(t, err)
		require.Len(t, found.Found, 1)
		require.Zero(t, w.Number("SELECT COUNT(*) FROM embedding_ledger"))
		require.Equal(t, []string{"keep"}, w.Text(keep.Document.ID))
	})
}

// Each thing that is left keeps a receipt from being verified, until it is gone.
func TestAReceiptSaysNothingThatIsNotTrue(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	w.Process(a.Task.ID)
	id, file := a.Document.ID, w.Stored()[0]
	late := map[string]ingest.Vector{}
	for id, v := range w.Vectors.Rows[a.Document.BaseID] {
		late[id] = v
	}
	require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, id))
	_, err := w.App.Sweep(t.Context())
	require.NoError(t, err)

	// A process that died between the commit and the removal leaves the file.
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, file), []byte("one\n"), 0o600))
	w.Vectors.Stubborn = true // it says that it has deleted, and has not
	w.Vectors.Rows[a.Document.BaseID] = late
	w.Advance(11 * time.Minute)
	_, err = w.App.Sweep(t.Context())
	require.ErrorContains(t, err, "still holds 1")
	require.NoFileExists(t, filepath.Join(w.Dir, file))
	require.True(t, receipt(w, id).RemovedAt.IsZero())
	w.Vectors.Stubborn = false
	w.SweepAll()
	require.False(t, receipt(w, id).RemovedAt.IsZero())

	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, file), []byte("one\n"), 0o600))
	aDayLater(w)
	_, err = w.App.Sweep(t.Context())
	require.NoError(t, err)
	require.True(t, receipt(w, id).VerifiedAt.IsZero(), "it was still there when it was looked for")
	w.Advance(time.Hour)
	_, err = w.App.Sweep(t.Context())
	require.NoError(t, err)
	d := receipt(w, id)
	require.False(t, d.VerifiedAt.IsZero())
	require.Equal(t, []any{int64(1), int64(1), 1}, []any{d.Segments, d.Vectors, d.Files}, "counted once")
}

func TestAFaultAtEveryEffectStillEndsInAReceipt(t *testing.T) {
	t.Parallel()
	for _, mode := range ingesttest.SweepFaults() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{})
			ingesttest.Every(t, mode, func(t *testing.T, n int, f *ingesttest.Faults) {
				before, _ := ingesttest.TwoVersions(n)
				a := w.Upload(before)
				w.Process(a.Task.ID)
				w.Afflicted(f)
				_ = w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID)
				for range 3 {
					_, _ = w.App.Sweep(t.Context())
					w.Advance(11 * time.Minute)
				}
				w.Advance(26 * time.Hour)
				_, _ = w.App.Sweep(t.Context())
				w.Calm()
				if _, err := w.App.Deletion(t.Context(), w.Caller, a.Document.ID); err != nil {
					require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
				}
				w.SweepAll()
				for range 3 {
					w.Advance(26 * time.Hour)
					_, err := w.App.Sweep(t.Context())
					require.NoError(t, err)
				}
				d := receipt(w, a.Document.ID)
				require.False(t, d.VerifiedAt.IsZero())
				require.Equal(t, []any{int64(4), int64(4), 1}, []any{d.Segments, d.Vectors, d.Files}, "counted once")
			})
		})
	}
}

func TestDocumentsOfADeletedBaseHaveReceipts(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	w.Process(a.Task.ID)
	require.NoError(t, w.App.DeleteBase(t.Context(), w.Caller, a.Document.BaseID, true))
	w.SweepAll()
	w.SweepAll()
	require.Zero(t, w.Number("SELECT COUNT(*) FROM knowledge_base"))
	aDayLater(w)
	_, err := w.App.Sweep(t.Context())
	require.NoError(t, err)
	d := receipt(w, a.Document.ID)
	require.False(t, d.VerifiedAt.IsZero())
	require.Equal(t, "user:"+w.Caller.Scope.UserID, d.By)
}
