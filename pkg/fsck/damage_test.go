package fsck_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/query"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/ingest/vector"
	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// damage is something that a person did by hand to rows, vectors or files.
type damage struct {
	rule string
	do   func(w *world)
	want string
	deep bool   // only the deep look finds it
	left string // what a repair says of it; empty: it mends it
}

// damages are each found by the rule and mended, or named as what cannot be.
var damages = map[string]damage{
	"stored file's row deleted": {rule: "I12", want: "which has no row", do: func(w *world) {
		w.sql(`DELETE FROM stored_file WHERE id = ?`, w.goodFile())
	}},
	"stored file's row deleted and the file lost": {rule: "I12", want: "which has no row", left: "which has no row", do: func(w *world) {
		file := w.goodFile()
		w.sql(`DELETE FROM stored_file WHERE id = ?`, file)
		require.NoError(w.t, os.Remove(filepath.Join(w.dir, file)))
	}},
	"segment's text replaced": {rule: "I25", want: "the text of segment 1 has SHA-256", left: "upload it again with force", do: func(w *world) {
		w.sql(`UPDATE knowledge_segment SET content = 'something else' WHERE vector_id = ?`, w.vector())
	}},
	"vector's values overwritten": {rule: "I25", want: "has other values", deep: true, do: func(w *world) {
		w.overwrite(map[string][]float32{w.vector(): {0, 0, 0, 1}})
	}},
	"two vectors swapped": {rule: "I25", want: "has other values", deep: true, do: func(w *world) {
		a, b := w.vectorAt(0), w.vectorAt(1)
		w.overwrite(map[string][]float32{a: {1, 1, 0, 0}, b: {1, 0, 0, 0}})
	}},
	"vector given to another document": {rule: "I25", want: "belongs to document", do: func(w *world) {
		w.relabel(w.vector(), tomb, w.goodVersion())
	}},
	"vector given to another version": {rule: "I25", want: "belongs to document", do: func(w *world) {
		w.relabel(w.vector(), w.goodDocument(), tomb)
	}},
	"document moved to another user": {rule: "I30", want: `user "mallory"`, do: func(w *world) {
		w.sql(`UPDATE knowledge_document SET parent_id = NULL`) // its attachment is mended with it
		w.sql(`UPDATE knowledge_document SET user_id = 'mallory' WHERE id = ?`, w.goodDocument())
	}},
	"document with other bytes than its file": {rule: "I12", want: "the stored file of its newest upload", do: func(w *world) {
		w.sql(`UPDATE knowledge_document SET content_sha256 = ? WHERE id = ?`, hash("other"), w.goodDocument())
	}},
	"row of metadata deleted": {rule: "I25", want: `has metadata "lang" without its row`, do: func(w *world) {
		w.sql(`DELETE FROM document_metadata WHERE name = 'lang' AND version_id = ?`, w.goodVersion())
	}},
	"all rows of metadata deleted": {rule: "I25", want: `has metadata "year" without its row`, do: func(w *world) {
		w.sql(`DELETE FROM document_metadata`)
	}},
	"row of metadata added": {rule: "I25", want: `has a row of metadata "note", which it has not`, do: func(w *world) {
		w.say(w.goodVersion(), w.goodDocument(), `{"note":true}`)
	}},
	"rows of metadata that was never given": {rule: "I25", want: `has a row of metadata "year", which it has not`, do: func(w *world) {
		w.sql(`UPDATE document_version SET metadata = NULL WHERE id = ?`, w.goodVersion())
	}},
	"value of metadata changed": {rule: "I25", want: `has metadata "lang" with another row`, do: func(w *world) {
		w.sql(`UPDATE document_metadata SET value = 'sDE' WHERE name = 'lang' AND version_id = ?`, w.goodVersion())
	}},
	"metadata given to another document": {rule: "I25", want: `has metadata "year" with another row`, do: func(w *world) {
		w.sql(`UPDATE document_metadata SET document_id = ? WHERE version_id = ?`, tomb, w.goodVersion())
	}},
	"metadata given to another base": {rule: "I25", want: `has metadata "lang" with another row`, do: func(w *world) {
		w.sql(`UPDATE document_metadata SET base_id = ?, value = 's' WHERE version_id = ?`, tomb, w.goodVersion())
	}},
	"metadata cut off": {rule: "I25", want: "cannot be read", left: "cannot be read", do: func(w *world) {
		w.sql(`UPDATE document_version SET metadata = '{"lang":"de"' WHERE id = ?`, w.goodVersion())
	}},
	"file without a row": {rule: "I12", want: "has no row", do: func(w *world) {
		path := filepath.Join(w.dir, w.id("8005"))
		require.NoError(w.t, os.WriteFile(path, []byte("whose?"), 0o600))
		long := time.Now().Add(-26 * time.Hour)
		require.NoError(w.t, os.Chtimes(path, long, long))
	}},
	"young file without a row": {rule: "I12", want: "has no row", left: "younger than a day", do: func(w *world) {
		require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, w.id("8005")), []byte("whose?"), 0o600))
		w.options.FileAge = fsck.AnyFileAge
	}},
}

func TestDamagesByHandAreFoundAndMended(t *testing.T) {
	t.Parallel()
	for kind, open := range labserver.Databases(databases) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, one := range damages {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, open(t))
					if kind != "sqlite" {
						w.intoChroma()
					}
					w.damaged(one)
				})
			}
		})
	}
}

// damaged does a damage to a whole world, looks, and mends.
func (w *world) damaged(one damage) {
	w.t.Helper()
	w.options.Deep = true
	require.NoError(w.t, w.check().Err(), "whole before")
	one.do(w)
	w.options.History = false
	w.options.Deep = false
	if one.deep {
		require.NoError(w.t, w.check().Err(), "only the deep look reads values")
	}
	w.options.Deep = one.deep
	found := w.find()
	text := ""
	for _, e := range found.Report.Rule(one.rule).Examples {
		text += e.Problem + "\n"
	}
	require.Contains(w.t, text, one.want)

	done, err := fsck.Repair(w.t.Context(), w.evidence(), found)
	require.NoError(w.t, err)
	if one.left != "" {
		require.Len(w.t, done.Left, 1)
		require.Contains(w.t, done.Left[0], one.left)
		require.NotZero(w.t, w.check().Rule(one.rule).Violations)
		return
	}
	require.Empty(w.t, done.Left)
	require.Equal(w.t, found.Report.Violations(), done.Mended+int64(done.Written+done.Files), "%+v", done)
	w.options.Deep, w.options.History = true, true
	require.NoError(w.t, w.check().Err(), "whole again")
}

// Filters find a document again when the rows of its metadata were mended.
func TestMendedMetadataIsFoundAgain(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		require.Equal(t, 2, w.filtered("lang", "de"))
		w.sql(`DELETE FROM document_metadata WHERE name = 'lang'`)
		w.sql(`UPDATE document_metadata SET value = 'n0' WHERE version_id = ?`, w.goodVersion())
		w.say(w.goodVersion(), w.goodDocument(), `{"final":true}`)
		require.Zero(t, w.filtered("lang", "de"))
		require.Equal(t, 1, w.filtered("year", 2024.0))
		require.Equal(t, 1, w.filtered("final", true))

		found := w.find()
		require.EqualValues(t, 4, found.Report.Violations())
		done, err := fsck.Repair(t.Context(), w.evidence(), found)
		require.NoError(t, err)
		require.Equal(t, fsck.Repaired{Rows: 2, Mended: 4}, done)
		require.Equal(t, 2, w.filtered("lang", "de"))
		require.Equal(t, 2, w.filtered("year", 2024.0))
		require.Zero(t, w.filtered("final", true))

		// Nothing is taken from what cannot be read.
		w.sql(`UPDATE document_version SET metadata = ''`)
		w.sql(`UPDATE document_version SET metadata = 'null' WHERE id = ?`, w.goodVersion())
		w.sql(`DELETE FROM document_metadata WHERE version_id <> ?`, w.goodVersion())
		found = w.find()
		require.EqualValues(t, 1, found.Report.Violations(), found.Report.Rule("I25").Examples)
		done, err = fsck.Repair(t.Context(), w.evidence(), found)
		require.NoError(t, err)
		require.Len(t, done.Left, 1)
		require.Equal(t, 1, w.filtered("lang", "de"))
	})
}

// filtered is how many documents a search for a word of theirs finds by their metadata.
func (w *world) filtered(key string, value any) int {
	w.t.Helper()
	rules, err := ingest.ParseMetadataRules("metadata", map[string]any{key: value})
	require.NoError(w.t, err)
	reads := query.NewReads(query.ReadsDeps{
		Store: w.store, Catalog: catalog.New(ingest.Deps{Store: w.store}), Embedder: fake{}, Index: textindex.New(w.store), Log: slog.New(slog.DiscardHandler),
	})
	found, err := reads.Search(w.t.Context(), ingest.Caller{Scope: taskstate.Scope{UserID: "u", Role: taskstate.RoleUser}}, ingest.SearchRequest{
		Query: "second", Mode: ingest.SearchText, Filter: ingest.SearchFilter{Metadata: rules},
	})
	require.NoError(w.t, err)
	return len(found.Hits)
}

// A version that closes before its rows are mended keeps what the sweep has left of them: nothing.
func TestMetadataOfAVersionThatClosesIsNotMended(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		w.sql(`DELETE FROM document_metadata WHERE version_id = ?`, w.goodVersion())
		found := w.find()
		e := w.evidence()
		e.DB = interrupted{w.store, w.hide}
		_, err := fsck.Repair(t.Context(), e, found)
		require.NoError(t, err)
		require.Equal(t, "0", w.read(`SELECT COUNT(*) FROM document_metadata WHERE version_id = ?`, w.goodVersion()))
	})
}

// interrupted is a database to which something happens before a repair writes.
type interrupted struct {
	*taskstore.Store
	before func()
}

func (d interrupted) InTx(ctx context.Context, f taskstate.TxFunc) error {
	d.before()
	return d.Store.InTx(ctx, f)
}

func TestAYoungFileWithoutARowIsCountedOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, w.id("8005")), []byte("whose?"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "tmp-"+w.id("8005")), []byte("coming"), 0o600))
	found := w.find()
	require.NoError(t, found.Report.Err())
	require.Equal(t, 1, found.Young)
}

func TestWhatTheCacheForgotIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.options.Deep = true
	require.Zero(t, w.find().Uncompared)
	w.sql(`DELETE FROM embedding_ledger WHERE text_hash = ?`, hash("second"))
	found := w.find()
	require.NoError(t, found.Report.Err())
	require.Equal(t, int64(2), found.Uncompared, "that text is in two documents")

	w.relabel(w.vector(), tomb, tomb)
	done, err := fsck.Repair(t.Context(), w.evidence(), w.find())
	require.NoError(t, err)
	require.Equal(t, fsck.Repaired{Written: 1}, done, "its values are those of the store")
	require.NoError(t, w.check().Err())
}

func TestRowsAreNotMendedAgainstAWitness(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.sql(`UPDATE knowledge_document SET user_id = 'mallory' WHERE id = ?`, w.goodDocument())
	w.sql(`UPDATE stored_file SET user_id = 'mallory' WHERE id = ?`, w.goodFile())
	w.options.History = false
	done, err := fsck.Repair(t.Context(), w.evidence(), w.find())
	require.NoError(t, err)
	require.Zero(t, done.Rows)
	require.Len(t, done.Left, 2)
	require.Equal(t, "mallory", w.read(`SELECT user_id FROM knowledge_document WHERE id = ?`, w.goodDocument()))
}

// goodFile and goodVersion are the good task's.
func (w *world) goodFile() string {
	return w.read(`SELECT file_id FROM document_version WHERE task_id = ?`, w.good)
}

func (w *world) goodVersion() string {
	return w.read(`SELECT id FROM document_version WHERE task_id = ?`, w.good)
}

// vectorAt is the vector of a segment of the good document.
func (w *world) vectorAt(index int) string {
	return w.read(`SELECT vector_id FROM knowledge_segment WHERE version_id = ? AND segment_index = ?`, w.goodVersion(), index)
}

// overwrite gives vectors other values and leaves their metadata.
func (w *world) overwrite(values map[string][]float32) {
	for id, v := range values {
		if w.chroma != nil {
			w.chroma.post(w.t, "update", map[string]any{"ids": []string{id}, "embeddings": [][]float32{v}})
			continue
		}
		rows, err := w.vectors.Get(w.t.Context(), base, []string{id}, false)
		require.NoError(w.t, err)
		row := rows[id]
		row.Values = v
		require.NoError(w.t, w.vectors.Upsert(w.t.Context(), base, []ingest.Vector{row}))
	}
}

// relabel gives a vector other metadata and leaves its values.
func (w *world) relabel(id, document, birth string) {
	if w.chroma != nil {
		w.chroma.post(w.t, "update", map[string]any{"ids": []string{id}, "metadatas": []map[string]string{{"document_id": document, "birth": birth}}})
		return
	}
	rows, err := w.vectors.Get(w.t.Context(), base, []string{id}, true)
	require.NoError(w.t, err)
	row := rows[id]
	row.DocumentID, row.Birth = document, birth
	require.NoError(w.t, w.vectors.Upsert(w.t.Context(), base, []ingest.Vector{row}))
}

// chromaHTTP is one collection of a real Chroma, spoken to as anybody could.
type chromaHTTP struct{ url string }

// intoChroma moves the world's vectors to a database of their own on a real Chroma.
func (w *world) intoChroma() {
	w.t.Helper()
	cfg := chroma.NewDefaultConfig()
	cfg.BaseURL, cfg.Database = labserver.Chroma(w.t).URL(""), filepath.Base(w.t.TempDir())+"-"+filepath.Base(filepath.Dir(w.dir))
	store, err := chroma.New(cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, store.Close()) })
	ids, err := w.vectors.List(w.t.Context(), base, 0, 100)
	require.NoError(w.t, err)
	rows, err := w.vectors.Get(w.t.Context(), base, ids, true)
	require.NoError(w.t, err)
	for _, row := range rows {
		require.NoError(w.t, store.Upsert(w.t.Context(), base, []ingest.Vector{row}))
	}
	w.vectors = store
	root := cfg.BaseURL + "/api/v2/tenants/" + cfg.Tenant + "/databases/" + cfg.Database + "/collections/"
	var collection struct{ ID string }
	require.NoError(w.t, json.Unmarshal(ask(w.t, http.MethodGet, root+vector.CollectionName(base), nil), &collection))
	w.chroma = &chromaHTTP{root + collection.ID + "/"}
}

// post does something to the collection.
func (c *chromaHTTP) post(t *testing.T, what string, body any) {
	ask(t, http.MethodPost, c.url+what, body)
}

// ask makes one request that has to succeed.
func ask(t *testing.T, method, url string, body any) []byte {
	t.Helper()
	encoded, err := json.Marshal(body)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(encoded))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer reply.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	require.Less(t, reply.StatusCode, 300, "%s", text)
	return text
}
