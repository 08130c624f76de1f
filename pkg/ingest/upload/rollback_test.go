package upload_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// twoVersions is a document whose second version is visible and whose first one has been swept.
func twoVersions(w *ingesttest.World, before, after string) ingest.Accepted {
	w.T.Helper()
	a := w.Accept(ingest.Upload{File: w.Receive("one.txt", before), Title: "First", Metadata: `{"year":1}`})
	w.Process(a.Task.ID)
	renew(w, a.Document.ID, "two.txt", after)
	w.SweepAll()
	return a
}

// renew uploads a further version and makes it visible.
func renew(w *ingesttest.World, document, name, text string) {
	w.T.Helper()
	b := w.Accept(ingest.Upload{File: w.Receive(name, text), DocumentID: document, Title: "Second", Metadata: `{}`})
	require.Equal(w.T, taskstate.StatusSucceeded, w.Process(b.Task.ID).Status)
}

func paid(w *ingesttest.World) (n int) {
	for _, times := range w.Embed.Paid {
		n += times
	}
	return n
}

func versionFiles(w *ingesttest.World, document string) int {
	return w.Number("SELECT COUNT(*) FROM document_version WHERE file_id <> '' AND document_id = '" + document + "'")
}

func TestARollbackIsANewVersionOfTheOldContent(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		before := ingesttest.Lines(20, 1)
		doc := twoVersions(w, before, ingesttest.Lines(20, 2)).Document.ID
		require.Len(t, w.Stored(), 2, "the file of the superseded version is kept")
		embedded := paid(w)

		got, err := w.App.Rollback(t.Context(), w.Caller, doc, 0, "k")
		require.NoError(t, err)
		require.False(t, got.Duplicate)
		again, err := w.App.Rollback(t.Context(), w.Caller, doc, 0, "k")
		require.NoError(t, err)
		require.True(t, again.Replayed)
		require.Equal(t, got.Task.ID, again.Task.ID)
		require.Equal(t, "Second", w.Document(doc).Title, "the visible version stays until the new one is")
		require.Equal(t, taskstate.StatusSucceeded, w.Process(got.Task.ID).Status)

		d := w.Document(doc)
		require.Equal(t, []any{int64(3), "First", "one.txt", ingest.Metadata(`{"year":1}`)}, []any{d.VisibleNo, d.Title, d.FileName, d.Metadata})
		require.Equal(t, ingesttest.SplitLines(before), w.Text(doc))
		require.Zero(t, paid(w)-embedded, "texts embedded in a rollback within the embedding cache's life")

		w.SweepAll()
		require.Len(t, w.Stored(), 2)
		require.Equal(t, 2, versionFiles(w, doc), "of the visible version and of the one before")
		w.CheckInvariants()
		w.CheckFiles()
		again, err = w.App.Rollback(t.Context(), w.Caller, doc, 0, "k")
		require.NoError(t, err, "whatever is visible by now")
		require.Equal(t, got.Task.ID, again.Task.ID)
		_, err = w.App.Rollback(t.Context(), w.Caller, doc, 2, "k")
		require.ErrorIs(t, err, ingest.ErrKeyReused)

		back, err := w.App.Rollback(t.Context(), w.Caller, doc, 2, "")
		require.NoError(t, err, "and there again")
		w.Process(back.Task.ID)
		d = w.Document(doc)
		require.Equal(t, []any{int64(4), "Second", "two.txt", ingest.Metadata(`{}`)}, []any{d.VisibleNo, d.Title, d.FileName, d.Metadata})

		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, doc))
		w.SweepAll()
		require.Empty(t, w.Stored())
	})
}

// Beyond the embedding cache's life only what is not in the visible version is paid for.
func TestARollbackAfterTheCachesLifePaysForWhatChanged(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	doc := twoVersions(w, "same\nold\n", "same\nnew\n").Document.ID
	w.Exec("DELETE FROM embedding_ledger")
	embedded := paid(w)
	got, err := w.App.Rollback(t.Context(), w.Caller, doc, 0, "")
	require.NoError(t, err)
	w.Process(got.Task.ID)
	require.Equal(t, []string{"same", "old"}, w.Text(doc))
	require.Equal(t, 1, paid(w)-embedded)
}

func TestOnlyTheLastContentIsKept(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		doc := twoVersions(w, "one\n", "two\n").Document.ID
		// The same bytes with the same title again, as re-indexing does: what differs is still the first version.
		same := w.Accept(ingest.Upload{File: w.Receive("two.txt", "two\n"), DocumentID: doc, Title: "Second", Metadata: `{}`, Force: true})
		w.Process(same.Task.ID)
		w.SweepAll()
		require.Len(t, w.Stored(), 2)
		require.Equal(t, 2, versionFiles(w, doc))
		_, err := w.App.Rollback(t.Context(), w.Caller, doc, 3, "")
		require.ErrorIs(t, err, ingest.ErrVersionVisible)
		_, err = w.App.Rollback(t.Context(), w.Caller, doc, 2, "")
		require.ErrorIs(t, err, ingest.ErrVersionGone)
		_, err = w.App.Rollback(t.Context(), w.Caller, doc, 9, "")
		require.ErrorIs(t, err, ingest.ErrVersionNotFound)
		bob := w.Caller
		bob.Scope.UserID = "bob"
		_, err = w.App.Rollback(t.Context(), bob, doc, 0, "")
		require.ErrorIs(t, err, ingest.ErrDocumentNotFound)

		renew(w, doc, "three.txt", "three\n")
		w.SweepAll()
		require.Len(t, w.Stored(), 2)
		_, err = w.App.Rollback(t.Context(), w.Caller, doc, 1, "")
		require.ErrorIs(t, err, ingest.ErrVersionGone)
		got, err := w.App.Rollback(t.Context(), w.Caller, doc, 0, "")
		require.NoError(t, err)
		w.Process(got.Task.ID)
		require.Equal(t, []string{"two"}, w.Text(doc))

		fresh := w.Upload("only\n")
		w.Process(fresh.Task.ID)
		_, err = w.App.Rollback(t.Context(), w.Caller, fresh.Document.ID, 0, "")
		require.ErrorIs(t, err, ingest.ErrVersionGone)
	})
}

// What others do between the look for the version and the accept.
func TestARollbackBesideOthers(t *testing.T) {
	t.Parallel()
	type world = *ingesttest.World
	for name, c := range map[string]struct {
		meanwhile func(w world, document string)
		text      []string // afterwards; nil: the rollback is refused
		want      error
	}{
		// The version to go back to is looked for anew: it is the one that was visible when the rollback was asked for.
		"a later version becomes visible": {func(w world, document string) {
			renew(w, document, "three.txt", "three\n")
			w.SweepAll()
		}, []string{"two"}, nil},
		"its file is lost": {func(w world, document string) {
			for _, name := range w.Stored() {
				text, err := os.ReadFile(filepath.Join(w.Dir, name))
				require.NoError(w.T, err)
				if string(text) == "one\n" {
					require.NoError(w.T, os.Remove(filepath.Join(w.Dir, name)))
				}
			}
		}, nil, ingest.ErrVersionGone},
		"the document is deleted": {func(w world, document string) {
			require.NoError(w.T, w.App.DeleteDocument(w.T.Context(), w.Caller, document))
			w.SweepAll()
		}, nil, ingest.ErrDocumentNotFound},
		"a later upload waits": {func(w world, document string) {
			w.Accept(ingest.Upload{File: w.Receive("three.txt", "three\n"), DocumentID: document})
		}, []string{"one"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{})
			doc := twoVersions(w, "one\n", "two\n").Document.ID
			s := &submits{Database: w.Store}
			quiet := w.App
			w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Store = s }})
			rolling := w.App
			s.first = func() {
				w.App = quiet
				c.meanwhile(w, doc)
			}
			got, err := rolling.Rollback(t.Context(), w.Caller, doc, 0, "")
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				w.SweepAll()
				w.CheckInvariants()
				return
			}
			require.NoError(t, err)
			w.Process(got.Task.ID)
			w.SweepAll()
			require.Equal(t, c.text, w.Text(doc))
			require.Len(t, w.Stored(), 2)
			w.CheckFiles()
			w.CheckInvariants()
		})
	}
}

func TestAFaultAtEveryEffectOfARollback(t *testing.T) {
	t.Parallel()
	for _, mode := range []ingesttest.FaultMode{ingesttest.ErrorBefore, ingesttest.ErrorAfter, ingesttest.CrashBefore, ingesttest.CrashAfter} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{})
			for n := 1; ; n++ {
				before, after := ingesttest.TwoVersions(n)
				doc := twoVersions(w, before, after).Document.ID
				key, f := fmt.Sprint("k", n), &ingesttest.Faults{At: n, Mode: mode}
				w.Afflicted(f)
				_, _ = w.App.Rollback(t.Context(), w.Caller, doc, 0, key)
				w.Calm()
				got, err := w.App.Rollback(t.Context(), w.Caller, doc, 0, key)
				require.NoError(t, err)
				w.Process(got.Task.ID)
				w.SweepAll()
				require.Equal(t, int64(3), w.Document(doc).VisibleNo, "one rollback, whatever happened to the first answer")
				require.Equal(t, ingesttest.SplitLines(before), w.Text(doc))
				w.CheckFiles()
				w.CheckInvariants()
				if !f.Hit {
					require.Greater(t, n, 1)
					return
				}
			}
		})
	}
}
