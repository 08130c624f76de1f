package sweep_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/sweep"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestDeletedIsGone(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		a, keep := w.Upload("one\ntwo\n"), w.Upload("keep\n")
		w.Process(a.Task.ID)
		w.Process(keep.Task.ID)
		open := w.Accept(ingest.Upload{File: w.Receive("b.txt", "three\n"), DocumentID: a.Document.ID})
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
		require.Equal(t, taskstate.StatusCancelled, w.Task(open.Task.ID).Status)
		require.Empty(t, w.Text(a.Document.ID), "out of every search at once")
		require.ErrorIs(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID), ingest.ErrDocumentNotFound)

		_, err := w.App.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, w.VectorCount(), "after one sweep no vector is left")
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_segment"))
		require.Len(t, w.Stored(), 1)
		w.CheckInvariants()

		w.SweepAll()
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_document"))
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM document_version"))
		require.Zero(t, w.Number("SELECT COUNT(*) FROM vector_garbage"))
		require.Equal(t, []string{"keep"}, w.Text(keep.Document.ID))

		again := w.Upload("one\ntwo\n")
		require.False(t, again.Duplicate)
		require.NotEqual(t, a.Document.ID, again.Document.ID)
	})
}

func TestUploadAfterDeletionIsNobodysDuplicate(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	w.Process(a.Task.ID)
	require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
	b := w.Upload("one\n")
	require.NotEqual(t, a.Document.ID, b.Document.ID)
	w.SweepAll()
	require.Len(t, w.Stored(), 1, "the file that both linked stays")
	require.Equal(t, taskstate.StatusSucceeded, w.Process(b.Task.ID).Status)
	require.Equal(t, []string{"one"}, w.Text(b.Document.ID))
}

func TestForeignDocumentIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	bob := w.Caller
	bob.Scope.UserID = "bob"
	require.ErrorIs(t, w.App.DeleteDocument(t.Context(), bob, a.Document.ID), ingest.ErrDocumentNotFound)
	require.ErrorIs(t, w.App.DeleteBase(t.Context(), bob, a.Document.BaseID, true), ingest.ErrBaseNotFound)
	require.NoError(t, w.App.DeleteDocument(t.Context(), ingest.Caller{Scope: taskstate.System()}, a.Document.ID), "operators reach all")
}

func TestDeleteBase(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		a := w.Upload("one\n")
		w.Process(a.Task.ID)
		w.Upload("two\n")
		require.ErrorIs(t, w.App.DeleteBase(t.Context(), w.Caller, "default", false), ingest.ErrBaseNotEmpty)
		require.NoError(t, w.App.DeleteBase(t.Context(), w.Caller, a.Document.BaseID, true))
		require.ErrorIs(t, w.App.DeleteBase(t.Context(), w.Caller, "default", true), ingest.ErrBaseNotFound)
		fresh := w.Upload("one\n")
		require.NotEqual(t, a.Document.BaseID, fresh.Document.BaseID, "the name is free again")
		w.SweepAll()
		w.SweepAll()
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_base"))
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_document"))
		require.Zero(t, w.VectorCount())
		require.Len(t, w.Stored(), 1)
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, fresh.Document.ID))
		require.NoError(t, w.App.DeleteBase(t.Context(), w.Caller, "default", false), "a base of tombstones is empty")
	})
}

func TestAVectorStoreThatIsAwayLosesNothing(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	w.Process(a.Task.ID)
	require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
	w.Vectors.Fail = func(string) error { return errors.New("away") }
	_, err := w.App.Sweep(t.Context())
	require.ErrorContains(t, err, "away")
	require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM vector_garbage WHERE marked_at IS NOT NULL"))
	w.Vectors.Fail = nil
	w.SweepAll()
	require.Zero(t, w.VectorCount())
	require.Zero(t, w.Number("SELECT COUNT(*) FROM knowledge_document"))
}

func TestALateUpsertIsDeletedInTheSecondPass(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	w.Process(a.Task.ID)
	late := map[string]ingest.Vector{}
	for id, v := range w.Vectors.Rows[a.Document.BaseID] {
		late[id] = v
	}
	require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
	_, err := w.App.Sweep(t.Context())
	require.NoError(t, err)
	w.Vectors.Rows[a.Document.BaseID] = late
	w.CheckInvariants()
	w.Clock.Advance(sweep.SecondPass + time.Minute)
	_, err = w.App.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, w.VectorCount())
}

func TestAFaultAtEveryEffectOfTheSweeper(t *testing.T) {
	t.Parallel()
	for _, mode := range ingesttest.SweepFaults() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{})
			ingesttest.Every(t, mode, func(t *testing.T, n int, f *ingesttest.Faults) {
				before, after := ingesttest.TwoVersions(n)
				a := w.Accept(ingest.Upload{File: w.Receive("a.txt", before)})
				w.Process(a.Task.ID)
				b := w.Accept(ingest.Upload{File: w.Receive("a.txt", after), DocumentID: a.Document.ID})
				w.Process(b.Task.ID)
				gone := w.Accept(ingest.Upload{File: w.Receive("c.txt", "gone "+before)})
				w.Process(gone.Task.ID)
				require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, gone.Document.ID))
				w.Advance(2 * time.Minute)
				w.Afflicted(f)
				app := w.App
				w.Calm()
				for range 4 {
					_, _ = app.Sweep(t.Context()) // its error is the fault
					w.CheckInvariants()
					w.CheckFiles()
					w.Advance(11 * time.Minute)
				}
				w.SweepAll()
				w.CheckInvariants()
				require.Equal(t, ingesttest.SplitLines(after), w.Text(a.Document.ID))
				require.Equal(t, w.Number("SELECT COUNT(*) FROM knowledge_segment"), w.VectorCount())
				require.Zero(t, w.Number("SELECT COUNT(*) FROM vector_garbage"))
			})
		})
	}
}

func TestSweepersBesideRuns(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		a := w.Upload("start\n")
		w.Process(a.Task.ID)
		stop := make(chan struct{})
		var sweepers sync.WaitGroup
		errs := make(chan error, 2)
		for range 2 {
			sweepers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := w.App.Sweep(t.Context()); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		for i := range 12 {
			before, after := ingesttest.TwoVersions(i % 3)
			text := before
			if i%2 == 1 {
				text = after
			}
			b := w.Accept(ingest.Upload{File: w.Receive("a.txt", text), DocumentID: a.Document.ID, Force: true})
			w.Advance(2 * time.Minute)
			require.Equal(t, taskstate.StatusSucceeded, w.Process(b.Task.ID).Status)
			require.Equal(t, ingesttest.SplitLines(text), w.Text(a.Document.ID))
		}
		close(stop)
		sweepers.Wait()
		close(errs)
		require.NoError(t, <-errs)
		w.SweepAll()
		w.CheckInvariants()
		require.Equal(t, w.Number("SELECT COUNT(*) FROM knowledge_segment"), w.VectorCount())
	})
}

func TestOrphanFilesGoAfterADay(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	kept := w.Upload("kept\n")
	orphan := w.Receive("a.txt", "orphan\n")
	fresh := w.Receive("b.txt", "fresh\n")
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, files.TempPrefix+ingest.NewID()), []byte("half"), 0o600))
	foreign := filepath.Join(w.Dir, "README")
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	old := w.Clock.Now().Add(-25 * time.Hour)
	for _, name := range w.Stored() {
		if name != fresh.ID {
			require.NoError(t, os.Chtimes(filepath.Join(w.Dir, name), old, old))
		}
	}
	require.NoError(t, os.Chtimes(filepath.Join(w.Dir, fresh.ID), w.Clock.Now(), w.Clock.Now()))
	n, err := w.App.SweepFiles(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NotContains(t, w.Stored(), orphan.ID)
	require.Contains(t, w.Stored(), fresh.ID)
	require.Contains(t, w.Stored(), "README", "what is not ours is left alone")
	require.Equal(t, taskstate.StatusSucceeded, w.Process(kept.Task.ID).Status)
}

// TestAFileIsSweptByTheDatabasesClock: a sweeper whose own clock is a day ahead takes nothing away.
func TestAFileIsSweptByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		f := w.Receive("a.txt", "received\n")
		now := time.Now()
		if !w.Server {
			now = w.Clock.Now()
		}
		require.NoError(t, os.Chtimes(filepath.Join(w.Dir, f.ID), now, now))
		w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Clock = func() time.Time { return now.Add(25 * time.Hour) } }})
		n, err := w.App.SweepFiles(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, []string{f.ID}, w.Stored())
	})
}

// TestAFileWhoseRowIsLostIsKept: fsck can make the row again only while the file is there.
func TestAFileWhoseRowIsLostIsKept(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		f := w.Receive("a.txt", "one\n")
		got, errs := w.App.AcceptAll(t.Context(), w.Caller, []ingest.Upload{{File: f}})
		require.NoError(t, errs[0])
		require.Equal(t, taskstate.StatusSucceeded, w.Process(got[0].Task.ID).Status)
		require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM stored_file")
			return err
		}))
		old := time.Now().Add(-48 * time.Hour)
		if !w.Server {
			old = w.Clock.Now().Add(-48 * time.Hour)
		}
		require.NoError(t, os.Chtimes(filepath.Join(w.Dir, f.ID), old, old))
		n, err := w.App.SweepFiles(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, []string{f.ID}, w.Stored())
	})
}

// TestARequestThatOutlastsTheSweepIsRefused: one file of the request was received a day ago and swept, the other is there.
func TestARequestThatOutlastsTheSweepIsRefused(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		first := w.Receive("a.txt", "one\n")
		old := time.Now().Add(-25 * time.Hour)
		if !w.Server {
			old = w.Clock.Now().Add(-25 * time.Hour)
		}
		require.NoError(t, os.Chtimes(filepath.Join(w.Dir, first.ID), old, old))
		second := w.Receive("b.txt", "two\n")
		n, err := w.App.SweepFiles(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		got, errs := w.App.AcceptAll(t.Context(), w.Caller, []ingest.Upload{{File: first}, {File: second}})
		require.ErrorIs(t, errs[0], ingest.ErrUploadExpired)
		require.NoError(t, errs[1])
		require.Equal(t, taskstate.StatusSucceeded, w.Process(got[1].Task.ID).Status)
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM ingest_task"), "nothing is promised for the swept one")
	})
}

func TestEmbeddingCacheIsSweptADayAfterItsLastUse(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Process(w.Upload("one\ntwo\n").Task.ID)
	w.Clock.Advance(20 * time.Hour)
	w.Process(w.Upload("one\n").Task.ID)
	w.Process(w.Upload("one\nthree\n").Task.ID)
	w.Clock.Advance(5 * time.Hour)
	_, err := w.App.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, w.Number("SELECT COUNT(*) FROM embedding_ledger"), "one was used again, two was not")
	require.Equal(t, 1, w.Embed.Paid["one"])
}

func TestATaskThatADeletionMissedEnds(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		bury := func(document string) {
			require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
				return w.App.Tombstone(ctx, tx, m, ingest.Caller{}, []string{document})
			}))
		}
		swept, late, finished := w.Upload("one\n"), w.Upload("two\n"), w.Upload("three\n")
		job, _ := w.Claim(finished.Task.ID)
		res := w.Handler.Handle(t.Context(), job)
		require.NoError(t, res.Err)
		for _, a := range []ingest.Accepted{swept, late, finished} {
			bury(a.Document.ID)
		}
		out, err := w.Finish(t.Context(), job, res)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusCancelled, out.After.Status, "its finish sees the tombstone")
		require.Equal(t, taskstate.StatusCancelled, w.Process(late.Task.ID).Status, "its run sees the tombstone")
		_, err = w.App.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusCancelled, w.Task(swept.Task.ID).Status, "the first pass cancels what is open")
		for _, a := range []ingest.Accepted{swept, late, finished} {
			log, err := w.Store.Transitions(t.Context(), taskstate.System(), a.Task.ID, 0, 10)
			require.NoError(t, err)
			require.Equal(t, taskstate.ReasonDeleted, log[len(log)-1].Reason)
		}
		w.SweepAll()
		require.Zero(t, w.Number("SELECT COUNT(*) FROM knowledge_document"))
		require.Zero(t, w.VectorCount())
		require.Empty(t, w.Stored())
	})
}
