package upload_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// race runs f at once from eight sides and returns how many succeeded; the others must have been told ErrChanged.
func race(t *testing.T, f func(i int) error) int {
	t.Helper()
	var wins atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			if errs[i] = f(i); errs[i] == nil {
				wins.Add(1)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			require.ErrorIs(t, err, ingest.ErrChanged)
		}
	}
	return int(wins.Load())
}

// The condition is judged under the lock of the row: of many who have seen the same state one may change it.
func TestGuardsLetOneThrough(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a := w.Upload("one\n")
		seen := w.Task(a.Task.ID)
		c := w.Caller
		c.Guard = func(current any) error {
			if now, ok := current.(taskstate.Task); !ok || now.Status != seen.Status || !now.UpdatedAt.Equal(seen.UpdatedAt) {
				return ingest.ErrChanged
			}
			return nil
		}
		require.Equal(t, 1, race(t, func(int) error {
			_, err := w.App.Suspend(t.Context(), c, a.Task.ID, "hold")
			return err
		}))

		document := w.Document(a.Document.ID)
		c.Guard = func(current any) error {
			if now, ok := current.(ingest.Document); !ok || now.BaseName != ingest.DefaultBase || now.LatestTaskID != document.LatestTask {
				return ingest.ErrChanged
			}
			return nil
		}
		files := make([]ingest.ReceivedFile, 8)
		for i := range files {
			files[i] = w.Receive("a.txt", fmt.Sprintf("version %d\n", i))
		}
		require.Equal(t, 1, race(t, func(i int) error {
			_, err := w.App.Accept(t.Context(), c, ingest.Upload{File: files[i], DocumentID: a.Document.ID})
			return err
		}))
		require.ErrorIs(t, w.App.DeleteDocument(t.Context(), c, a.Document.ID), ingest.ErrChanged)
		require.True(t, w.Document(a.Document.ID).DeletedAt.IsZero())

		base := 0
		c.Guard = func(current any) error {
			if _, ok := current.(ingest.Base); !ok {
				base--
			}
			base++
			return ingest.ErrChanged
		}
		require.ErrorIs(t, w.App.DeleteBase(t.Context(), c, ingest.DefaultBase, true), ingest.ErrChanged)
		require.Equal(t, 1, base)
		w.CheckInvariants()
	})
}

// What a note cannot be written for does not happen, and what happens has its note in the same transaction.
func TestNotesAndChangesGoTogether(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a, boom := w.Upload("one\n"), errors.New("no audit")
		c := w.Caller
		c.Note = func(context.Context, taskstate.Tx, taskstate.DBClock) error { return boom }
		_, err := w.App.Suspend(t.Context(), c, a.Task.ID, "hold")
		require.ErrorIs(t, err, boom)
		require.ErrorIs(t, w.App.DeleteDocument(t.Context(), c, a.Document.ID), boom)
		require.ErrorIs(t, w.App.DeleteBase(t.Context(), c, ingest.DefaultBase, true), boom)
		require.Equal(t, taskstate.StatusQueued, w.Task(a.Task.ID).Status)
		require.True(t, w.Document(a.Document.ID).DeletedAt.IsZero())

		notes := 0
		c.Note = func(context.Context, taskstate.Tx, taskstate.DBClock) error { notes++; return nil }
		_, err = w.App.Suspend(t.Context(), c, a.Task.ID, "hold")
		require.NoError(t, err)
		require.Equal(t, 1, notes)
		_, err = w.App.Suspend(t.Context(), c, a.Task.ID, "hold")
		require.Error(t, err)
		require.Equal(t, 1, notes, "what is refused has none")
		require.NoError(t, w.App.DeleteDocument(t.Context(), c, a.Document.ID))
		require.Equal(t, 2, notes)
		w.CheckInvariants()
	})
}
