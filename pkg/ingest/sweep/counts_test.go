package sweep_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Documents are counted through their whole life, and their numbers say the same before and after the sweeper has joined them (I42).
func TestDocumentsAreCounted(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		_, err := w.App.CreateBase(t.Context(), w.Caller, "notes", ingest.BaseSettings{})
		require.NoError(t, err)
		counts := func(want map[ingest.DocumentStatus]int64, segments int64) {
			t.Helper()
			for range 2 {
				w.CheckInvariants()
				s, err := r.Reads.BaseSummary(t.Context(), w.Caller, "notes")
				require.NoError(t, err)
				require.Equal(t, want, s.Documents)
				require.Equal(t, segments, s.Segments)
				_, err = w.App.JoinCounts(t.Context(), 100)
				require.NoError(t, err)
			}
			require.Zero(t, w.Number("SELECT COUNT(*) FROM document_count_change"))
		}
		upload := func(document, text string) ingest.Accepted {
			return w.Accept(ingest.Upload{File: w.Receive("a.txt", text), Base: "notes", DocumentID: document})
		}
		a, b, c := upload("", "one\ntwo\n"), upload("", "three\n"), upload("", "four\n")
		counts(map[ingest.DocumentStatus]int64{ingest.DocumentQueued: 3}, 0)
		w.Process(a.Task.ID)
		_, _ = w.Claim(b.Task.ID)
		counts(map[ingest.DocumentStatus]int64{ingest.DocumentReady: 1, ingest.DocumentProcessing: 1, ingest.DocumentQueued: 1}, 2)
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, b.Document.ID), "while it runs")
		w.FinishTogether(c.Task.ID)
		counts(map[ingest.DocumentStatus]int64{ingest.DocumentReady: 2}, 3)

		again := upload(a.Document.ID, "one\ntwo\nthree\nfour\nfive\n")
		counts(map[ingest.DocumentStatus]int64{ingest.DocumentReady: 2}, 3)
		w.Process(again.Task.ID)
		counts(map[ingest.DocumentStatus]int64{ingest.DocumentReady: 2}, 6)

		require.NoError(t, w.App.DeleteBase(t.Context(), w.Caller, "notes", true))
		w.SweepAll()
		require.Zero(t, w.Number("SELECT COUNT(*) FROM document_count"), "of what is gone nothing stays")
		require.Zero(t, w.Number("SELECT COUNT(*) FROM document_count_change"))
	})
}

// A sweeper does not wait for whoever is just changing documents, and two sweepers never take the same rows.
func TestCountsAreJoinedBesideChanges(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		if !w.Server {
			return // one transaction at a time writes to SQLite
		}
		w.Upload("one\n")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		enough := errors.New("enough")
		err := w.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO document_count_change (base_id, status, documents, segments) VALUES ('x', 'READY', 1, 1)"); err != nil {
				return err
			}
			n, err := w.App.JoinCounts(ctx, 100)
			require.NoError(t, err)
			require.Equal(t, 1, n, "of the upload")
			return enough
		})
		require.ErrorIs(t, err, enough)
		w.CheckInvariants()

		w.Upload("two\n")
		w.Upload("three\n")
		took := make(chan int, 2)
		for range 2 {
			go func() {
				n, err := w.App.JoinCounts(t.Context(), 1)
				if err != nil {
					t.Error(err)
				}
				took <- n
			}()
		}
		sum := <-took + <-took
		require.Equal(t, 2-sum, w.Number("SELECT COUNT(*) FROM document_count_change"))
		w.CheckInvariants()
	})
}
