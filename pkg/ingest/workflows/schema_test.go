package workflows_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// declare gives the default base a schema that asks for a language.
func (b *bench) declare() {
	b.t.Helper()
	s, err := ingest.MetadataSchema{Fields: map[string]ingest.MetadataField{"lang": {Type: ingest.MetadataString, Required: true}}}.Check("")
	require.NoError(b.t, err)
	_, err = b.App.ChangeBase(b.t.Context(), b.Caller, "", ingest.BaseSettings{MetadataSchema: &s})
	require.NoError(b.t, err)
}

// A workflow that takes a document in fails for good when its metadata does not fit, with the key and what is asked; nothing is left of it.
// One that takes a document in anew does not judge what the document has.
func TestWorkflowsFitTheSchemaOfTheirBase(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(out, "at an address\n")
	}))
	t.Cleanup(site.Close)
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newBench(t, w, "127.0.0.0/8")
		older := w.Upload("older\n")
		w.Process(older.Task.ID)
		b.declare()
		stored, tasks := w.Stored(), w.Number("SELECT COUNT(*) FROM ingest_task")
		for id, payload := range map[string]string{
			workflows.IngestText: `{"text":"a"`, workflows.IngestURL: `{"url":"` + site.URL + `"`,
		} {
			for said, message := range map[string]string{
				`}`:                                "metadata.lang is missing; the knowledge base's metadata schema asks for a string",
				`,"metadata":{"lang":true}}`:       "metadata.lang is true, a boolean; ",
				`,"metadata":{"lang":"de","a":1}}`: "metadata.a is no field of the knowledge base's metadata schema, which has lang; leave it out",
			} {
				f := b.fails(id, payload+said)
				require.Equal(t, []any{workflow.CodePayload, true}, []any{f.Code, f.Permanent})
				require.Contains(t, f.Message, message)
			}
			require.Equal(t, stored, w.Stored())
			require.Equal(t, tasks, w.Number("SELECT COUNT(*) FROM ingest_task"))
		}
		for id, payload := range map[string]string{workflows.IngestText: `{"text":"a"`, workflows.IngestURL: `{"url":"` + site.URL + `"`} {
			got := b.taken(b.task(), id, payload+`,"metadata":{"lang":"de"}}`)
			require.Equal(t, taskstate.StatusSucceeded, w.Process(got.TaskID).Status)
		}
		again := b.taken(b.task(), workflows.IngestDocument, `{"documentId":"`+older.Document.ID+`"}`)
		require.Equal(t, taskstate.StatusSucceeded, w.Process(again.TaskID).Status)
		require.Equal(t, ingest.Metadata(""), w.Document(older.Document.ID).Metadata)
		w.CheckInvariants()
		w.CheckFiles()
	})
}

// Of an archive that was accepted before its base's schema changed each file is refused in its line; a base that is made anew while the schema is
// in force keeps what it has.
func TestAnArchiveMeetsAChangedSchema(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		older := w.Upload("One is here.")
		w.Process(older.Task.ID)
		f, task := b.received("all.zip", zipped(t, "one.txt", "One is here.", "two.txt", "Two is here.", "three.txt", "Three is here."))
		b.declare()
		got, err := b.unpacked(f, task, `,"metadata":{"lang":1}`)
		require.NoError(t, err)
		require.Equal(t, []string{"two.txt INVALID_PAYLOAD", "three.txt INVALID_PAYLOAD", "one.txt"}, names(got.Entries))
		require.Contains(t, got.Entries[0].Error.Message, "metadata.lang is 1, a number; the knowledge base's metadata schema asks for a string")
		require.True(t, got.Entries[2].Duplicate)
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_document"))

		c, err := ingest.ChunkOptions{Strategy: ingest.ChunkSentences}.Chunking("")
		require.NoError(t, err)
		_, err = w.App.ChangeBase(t.Context(), w.Caller, "", ingest.BaseSettings{Chunking: &c})
		require.NoError(t, err)
		made, err := b.reindexed(t.Context(), b.task(), false, b.work)
		require.NoError(t, err)
		require.Equal(t, workflows.Reindexed{Documents: 1, Outdated: 1, Done: 1}, made)
		w.CheckFiles()
	})
}
