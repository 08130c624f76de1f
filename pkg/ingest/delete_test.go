package ingest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

func TestDeletedIsGone(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a, keep := w.upload("one\ntwo\n"), w.upload("keep\n")
		w.process(a.Task.ID)
		w.process(keep.Task.ID)
		open := w.accept(Upload{File: w.receive("b.txt", "three\n"), DocumentID: a.Document.ID})
		require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID))
		require.Equal(t, taskstate.StatusCancelled, w.task(open.Task.ID).Status)
		require.Empty(t, w.text(a.Document.ID), "out of every search at once")
		require.ErrorIs(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID), ErrDocumentNotFound)

		_, err := w.app.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, w.vectorCount(), "after one sweep no vector is left")
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM knowledge_segment"))
		require.Len(t, w.stored(), 1)
		w.checkInvariants()

		w.sweepAll()
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM knowledge_document"))
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM document_version"))
		require.Zero(t, w.number("SELECT COUNT(*) FROM vector_garbage"))
		require.Equal(t, []string{"keep"}, w.text(keep.Document.ID))

		again := w.upload("one\ntwo\n")
		require.False(t, again.Duplicate)
		require.NotEqual(t, a.Document.ID, again.Document.ID)
	})
}

func TestUploadAfterDeletionIsNobodysDuplicate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("one\n")
	w.process(a.Task.ID)
	require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID))
	b := w.upload("one\n")
	require.NotEqual(t, a.Document.ID, b.Document.ID)
	w.sweepAll()
	require.Len(t, w.stored(), 1, "the file that both linked stays")
	require.Equal(t, taskstate.StatusSucceeded, w.process(b.Task.ID).Status)
	require.Equal(t, []string{"one"}, w.text(b.Document.ID))
}

func TestForeignDocumentIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("one\n")
	bob := w.caller
	bob.Scope.UserID = "bob"
	require.ErrorIs(t, w.app.DeleteDocument(t.Context(), bob, a.Document.ID), ErrDocumentNotFound)
	require.ErrorIs(t, w.app.DeleteBase(t.Context(), bob, a.Document.BaseID, true), ErrBaseNotFound)
	require.NoError(t, w.app.DeleteDocument(t.Context(), Caller{Scope: taskstate.System()}, a.Document.ID), "operators reach all")
}

func TestDeleteBase(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a := w.upload("one\n")
		w.process(a.Task.ID)
		w.upload("two\n")
		require.ErrorIs(t, w.app.DeleteBase(t.Context(), w.caller, "default", false), ErrBaseNotEmpty)
		require.NoError(t, w.app.DeleteBase(t.Context(), w.caller, a.Document.BaseID, true))
		require.ErrorIs(t, w.app.DeleteBase(t.Context(), w.caller, "default", true), ErrBaseNotFound)
		fresh := w.upload("one\n")
		require.NotEqual(t, a.Document.BaseID, fresh.Document.BaseID, "the name is free again")
		w.sweepAll()
		w.sweepAll()
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM knowledge_base"))
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM knowledge_document"))
		require.Zero(t, w.vectorCount())
		require.Len(t, w.stored(), 1)
		require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, fresh.Document.ID))
		require.NoError(t, w.app.DeleteBase(t.Context(), w.caller, "default", false), "a base of tombstones is empty")
	})
}

func TestAVectorStoreThatIsAwayLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("one\n")
	w.process(a.Task.ID)
	require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID))
	w.vectors.fail = func(string) error { return errors.New("away") }
	_, err := w.app.Sweep(t.Context())
	require.ErrorContains(t, err, "away")
	require.Equal(t, 1, w.number("SELECT COUNT(*) FROM vector_garbage WHERE marked_at IS NOT NULL"))
	w.vectors.fail = nil
	w.sweepAll()
	require.Zero(t, w.vectorCount())
	require.Zero(t, w.number("SELECT COUNT(*) FROM knowledge_document"))
}

func TestALateUpsertIsDeletedInTheSecondPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("one\n")
	w.process(a.Task.ID)
	late := map[string]Vector{}
	for id, v := range w.vectors.rows[a.Document.BaseID] {
		late[id] = v
	}
	require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID))
	_, err := w.app.Sweep(t.Context())
	require.NoError(t, err)
	w.vectors.rows[a.Document.BaseID] = late
	w.checkInvariants()
	w.clock.advance(secondPass + time.Minute)
	_, err = w.app.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, w.vectorCount())
}

func TestAFaultAtEveryEffectOfTheSweeper(t *testing.T) {
	t.Parallel()
	for _, mode := range []faultMode{errorBefore, errorAfter, crashBefore, crashAfter, undone} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			every(t, mode, func(t *testing.T, n int, f *faults) {
				before, after := w.twoVersions(n)
				a := w.accept(Upload{File: w.receive("a.txt", before)})
				w.process(a.Task.ID)
				b := w.accept(Upload{File: w.receive("a.txt", after), DocumentID: a.Document.ID})
				w.process(b.Task.ID)
				gone := w.accept(Upload{File: w.receive("c.txt", "gone "+before)})
				w.process(gone.Task.ID)
				require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, gone.Document.ID))
				w.advance(2 * time.Minute)
				w.afflicted(f)
				app := w.app
				w.calm()
				for range 4 {
					_, _ = app.Sweep(t.Context()) // its error is the fault
					w.checkInvariants()
					w.checkFiles()
					w.advance(11 * time.Minute)
				}
				w.sweepAll()
				w.checkInvariants()
				require.Equal(t, splitLines(after), w.text(a.Document.ID))
				require.Equal(t, w.number("SELECT COUNT(*) FROM knowledge_segment"), w.vectorCount())
				require.Zero(t, w.number("SELECT COUNT(*) FROM vector_garbage"))
			})
		})
	}
}

func TestSweepersBesideRuns(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a := w.upload("start\n")
		w.process(a.Task.ID)
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
					if _, err := w.app.Sweep(t.Context()); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		for i := range 12 {
			before, after := w.twoVersions(i % 3)
			text := before
			if i%2 == 1 {
				text = after
			}
			b := w.accept(Upload{File: w.receive("a.txt", text), DocumentID: a.Document.ID, Force: true})
			w.advance(2 * time.Minute)
			require.Equal(t, taskstate.StatusSucceeded, w.process(b.Task.ID).Status)
			require.Equal(t, splitLines(text), w.text(a.Document.ID))
		}
		close(stop)
		sweepers.Wait()
		close(errs)
		require.NoError(t, <-errs)
		w.sweepAll()
		w.checkInvariants()
		require.Equal(t, w.number("SELECT COUNT(*) FROM knowledge_segment"), w.vectorCount())
	})
}

func TestOrphanFilesGoAfterADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	kept := w.upload("kept\n")
	orphan := w.receive("a.txt", "orphan\n")
	fresh := w.receive("b.txt", "fresh\n")
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, tempPrefix+newID()), []byte("half"), 0o600))
	foreign := filepath.Join(w.dir, "README")
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	old := w.clock.Now().Add(-25 * time.Hour)
	for _, name := range w.stored() {
		if name != fresh.ID {
			require.NoError(t, os.Chtimes(filepath.Join(w.dir, name), old, old))
		}
	}
	require.NoError(t, os.Chtimes(filepath.Join(w.dir, fresh.ID), w.clock.Now(), w.clock.Now()))
	n, err := w.app.SweepFiles(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NotContains(t, w.stored(), orphan.ID)
	require.Contains(t, w.stored(), fresh.ID)
	require.Contains(t, w.stored(), "README", "what is not ours is left alone")
	require.Equal(t, taskstate.StatusSucceeded, w.process(kept.Task.ID).Status)
}

// TestAFileIsSweptByTheDatabasesClock: a sweeper whose own clock is a day ahead takes nothing away.
func TestAFileIsSweptByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		f := w.receive("a.txt", "received\n")
		now := time.Now()
		if !w.server {
			now = w.clock.Now()
		}
		require.NoError(t, os.Chtimes(filepath.Join(w.dir, f.ID), now, now))
		w.build(worldOptions{deps: func(d *Deps) { d.Clock = func() time.Time { return now.Add(25 * time.Hour) } }})
		n, err := w.app.SweepFiles(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, []string{f.ID}, w.stored())
	})
}

// TestAFileWhoseRowIsLostIsKept: fsck can make the row again only while the file is there.
func TestAFileWhoseRowIsLostIsKept(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		f := w.receive("a.txt", "one\n")
		got, errs := w.app.AcceptAll(t.Context(), w.caller, []Upload{{File: f}})
		require.NoError(t, errs[0])
		require.Equal(t, taskstate.StatusSucceeded, w.process(got[0].Task.ID).Status)
		require.NoError(t, w.store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM stored_file")
			return err
		}))
		old := time.Now().Add(-48 * time.Hour)
		if !w.server {
			old = w.clock.Now().Add(-48 * time.Hour)
		}
		require.NoError(t, os.Chtimes(filepath.Join(w.dir, f.ID), old, old))
		n, err := w.app.SweepFiles(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, []string{f.ID}, w.stored())
	})
}

// TestARequestThatOutlastsTheSweepIsRefused: one file of the request was received a day ago and swept, the other is there.
func TestARequestThatOutlastsTheSweepIsRefused(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.receive("a.txt", "one\n")
		old := time.Now().Add(-25 * time.Hour)
		if !w.server {
			old = w.clock.Now().Add(-25 * time.Hour)
		}
		require.NoError(t, os.Chtimes(filepath.Join(w.dir, first.ID), old, old))
		second := w.receive("b.txt", "two\n")
		n, err := w.app.SweepFiles(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		got, errs := w.app.AcceptAll(t.Context(), w.caller, []Upload{{File: first}, {File: second}})
		require.ErrorIs(t, errs[0], ErrUploadExpired)
		require.NoError(t, errs[1])
		require.Equal(t, taskstate.StatusSucceeded, w.process(got[1].Task.ID).Status)
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM ingest_task"), "nothing is promised for the swept one")
	})
}

func TestEmbeddingCacheIsSweptADayAfterItsLastUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.process(w.upload("one\ntwo\n").Task.ID)
	w.clock.advance(20 * time.Hour)
	w.process(w.upload("one\n").Task.ID)
	w.process(w.upload("one\nthree\n").Task.ID)
	w.clock.advance(5 * time.Hour)
	_, err := w.app.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, w.number("SELECT COUNT(*) FROM embedding_ledger"), "one was used again, two was not")
	require.Equal(t, 1, w.embed.paid["one"])
}

func TestATaskThatADeletionMissedEnds(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		bury := func(document string) {
			require.NoError(t, w.store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
				return w.app.bury(ctx, tx, m, Caller{}, []string{document})
			}))
		}
		swept, late, finished := w.upload("one\n"), w.upload("two\n"), w.upload("three\n")
		job, _ := w.claim(finished.Task.ID)
		res := w.handler.Run(t.Context(), job)
		require.NoError(t, res.Err)
		for _, a := range []Accepted{swept, late, finished} {
			bury(a.Document.ID)
		}
		out, err := w.finish(t.Context(), job, res)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusCancelled, out.After.Status, "its finish sees the tombstone")
		require.Equal(t, taskstate.StatusCancelled, w.process(late.Task.ID).Status, "its run sees the tombstone")
		_, err = w.app.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusCancelled, w.task(swept.Task.ID).Status, "the first pass cancels what is open")
		for _, a := range []Accepted{swept, late, finished} {
			log, err := w.store.Transitions(t.Context(), taskstate.System(), a.Task.ID, 0, 10)
			require.NoError(t, err)
			require.Equal(t, taskstate.ReasonDeleted, log[len(log)-1].Reason)
		}
		w.sweepAll()
		require.Zero(t, w.number("SELECT COUNT(*) FROM knowledge_document"))
		require.Zero(t, w.vectorCount())
		require.Empty(t, w.stored())
	})
}
