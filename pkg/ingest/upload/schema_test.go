package upload_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// asks is a schema of one field that documents must have, and of no other key.
func asks(t *testing.T, key string, kind ingest.MetadataType) *ingest.MetadataSchema {
	t.Helper()
	s, err := ingest.MetadataSchema{Fields: map[string]ingest.MetadataField{key: {Type: kind, Required: true}}}.Check("")
	require.NoError(t, err)
	return &s
}

// declare gives the default base a schema; nil: none.
func (w *world) declare(s *ingest.MetadataSchema) {
	w.T.Helper()
	if s == nil {
		s = &ingest.MetadataSchema{Additional: true}
	}
	b, err := w.App.ChangeBase(w.T.Context(), w.Caller, "", ingest.BaseSettings{MetadataSchema: s})
	require.NoError(w.T, err)
	require.Equal(w.T, s.OrNone(), b.MetadataSchema)
	b, err = w.App.Base(w.T.Context(), w.Caller, "")
	require.NoError(w.T, err)
	require.Equal(w.T, s.OrNone(), b.MetadataSchema)
}

// misfit is refused with the message, and nothing is stored of it.
func (w *world) misfit(u ingest.Upload, message string) {
	w.T.Helper()
	count := func() []int {
		return []int{
			w.Number("SELECT COUNT(*) FROM ingest_task"), w.Number("SELECT COUNT(*) FROM knowledge_document"), w.Number("SELECT COUNT(*) FROM document_version"),
			w.Number("SELECT COUNT(*) FROM stored_file"), w.Number("SELECT COALESCE(SUM(last_upload_no), 0) FROM knowledge_document"),
		}
	}
	before := count()
	_, err := w.App.Accept(w.T.Context(), w.Caller, u)
	require.ErrorAs(w.T, err, new(*ingest.TextError))
	require.ErrorContains(w.T, err, message)
	w.App.Discard(u.File)
	require.Equal(w.T, before, count())
}

// A version is judged by what it will have as metadata, said or inherited, unless what the document holds is only taken in anew.
func TestUploadsFitTheSchemaOfTheirBase(t *testing.T) {
	t.Parallel()
	const german, english = ingest.Metadata(`{"lang":"de"}`), ingest.Metadata(`{"lang":"en"}`)
	onEachDatabase(t, func(t *testing.T, w *world) {
		older := w.Accept(ingest.Upload{File: w.Receive("older.txt", "older\n"), Metadata: `{"lang":7}`, IdempotencyKey: "older"})
		w.Process(older.Task.ID)
		w.declare(asks(t, "lang", ingest.MetadataString))

		w.misfit(w.file("new\n"), "metadata.lang is missing")
		u := w.file("new\n")
		u.Metadata = `{"lang":"de","color":"red"}`
		w.misfit(u, "metadata.color is no field")
		u = w.file("new\n")
		u.Metadata = german
		fine := w.Accept(u)
		w.Process(fine.Task.ID)
		u = w.file("new\n")
		u.Metadata = `{"lang":true}`
		require.True(t, w.Accept(u).Duplicate, "the same bytes are the document that is there; nothing is stored")

		// Further versions.
		next := ingest.Upload{File: w.Receive("a.txt", "newer\n"), DocumentID: fine.Document.ID}
		require.Equal(t, german, metadataOf(t, w.Accept(next).Task), "it keeps what fits")
		next = ingest.Upload{File: w.Receive("a.txt", "newest\n"), DocumentID: fine.Document.ID, Metadata: `{}`}
		w.misfit(next, "metadata.lang is missing")
		next.File, next.Metadata = w.Receive("a.txt", "newest\n"), english
		w.Process(w.Accept(next).Task.ID)

		// Documents that were there stay as they are, and their repeats find them; a version of theirs has to fit.
		require.Equal(t, older.Task.ID, w.Accept(ingest.Upload{File: w.Receive("older.txt", "older\n"), Metadata: `{"lang":7}`, IdempotencyKey: "older"}).Task.ID)
		require.True(t, w.Accept(w.file("older\n")).Duplicate)
		force := w.file("older\n")
		force.Force = true
		w.misfit(force, "metadata.lang is 7, a number")
		w.misfit(ingest.Upload{File: w.Receive("a.txt", "old 2\n"), DocumentID: older.Document.ID}, "metadata.lang is 7, a number")
		again := ingest.Upload{File: w.Receive("a.txt", "older\n"), DocumentID: older.Document.ID, Metadata: `{"lang":7}`, Again: true, Force: true}
		w.Process(w.Accept(again).Task.ID)
		w.Process(w.Accept(ingest.Upload{File: w.Receive("a.txt", "old 2\n"), DocumentID: older.Document.ID, Metadata: german}).Task.ID)
		back, err := w.App.Rollback(t.Context(), w.Caller, older.Document.ID, 0, "")
		require.NoError(t, err, "a rollback brings what was there")
		w.Process(back.Task.ID)
		require.Equal(t, ingest.Metadata(`{"lang":7}`), w.Document(older.Document.ID).Metadata)

		// In one batch each is judged for itself; another base, and no schema, take anything.
		bad, good := w.file("bad\n"), w.file("good\n")
		bad.Metadata, good.Metadata = `{"lang":1}`, german
		_, errs := w.together(w.of("anna", bad), w.of("anna", good), w.of("bob", w.file("bob's\n")))
		require.ErrorContains(t, errs[0], "metadata.lang is 1")
		require.NoError(t, errs[1])
		require.NoError(t, errs[2])
		lost := w.file("lost\n")
		lost.Lost = &ingest.Lost{TaskID: ingest.NewID(), DocumentID: ingest.NewID()}
		require.Equal(t, lost.Lost.TaskID, w.Accept(lost).Task.ID, "rows that come back from copies")
		w.declare(nil)
		w.Accept(w.file("anything\n"))
		require.Equal(t, 0, w.Number("SELECT COUNT(*) FROM knowledge_base WHERE metadata_schema IS NOT NULL"))
		w.CheckInvariants()
	})
}

// metadataOf is what a task's payload has.
func metadataOf(t *testing.T, task taskstate.Task) ingest.Metadata {
	t.Helper()
	var p ingest.Payload
	require.NoError(t, json.Unmarshal(task.Payload, &p))
	return ingest.Metadata(p.Metadata)
}

// The schema that holds when an upload's rows are committed judges it. A change that comes before makes it misfit, although the upload was
// received under another one.
func TestAChangedSchemaJudgesWhatIsCommittedAfterIt(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.Upload("first\n") // makes the base
		u := w.file("second\n")
		u.Metadata = `{"lang":"de"}`
		begun, judged := make(chan struct{}), make(chan error, 1)
		w.counted().first = func() { close(begun) }
		c := w.Caller
		c.Guard = func(any) error { // the change is written, and not committed
			go func() {
				_, err := w.App.Accept(t.Context(), w.Caller, u)
				judged <- err
			}()
			<-begun
			return nil
		}
		_, err := w.App.ChangeBase(t.Context(), c, "", ingest.BaseSettings{MetadataSchema: asks(t, "year", ingest.MetadataNumber)})
		require.NoError(t, err)
		require.ErrorContains(t, <-judged, "metadata.lang is no field")
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_document"))
	})
}

// An upload that was judged keeps its base locked until it is committed: a change waits for it.
func TestAChangeOfASchemaWaitsForWhatWasJudged(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		base := w.Upload("first\n").Document.BaseID
		lock := func() error {
			var id string
			return w.Store.Reader().QueryRowContext(t.Context(), "SELECT id FROM knowledge_base WHERE id = '"+base+"' FOR UPDATE NOWAIT").Scan(&id)
		}
		s := w.counted()
		if w.Server { // SQLite has one transaction at a time
			require.NoError(t, lock())
			s.before = func(context.Context, int64) error {
				if lock() == nil {
					return errors.New("the base is not locked")
				}
				return nil
			}
		}
		w.Accept(w.file("second\n"))
		require.EqualValues(t, 1, s.calls.Load())
		s.before = nil
		w.declare(asks(t, "year", ingest.MetadataNumber))
		w.misfit(w.file("third\n"), "metadata.year is missing")
	})
}
