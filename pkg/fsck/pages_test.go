package fsck_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// many is more than a page of anything that is read in pages.
const many = 1100

// enlarge gives the good document many segments. Its twin was split by another splitter.
func (w *world) enlarge() {
	w.t.Helper()
	document, version := w.goodDocument(), w.goodVersion()
	texts := []string{"first", "second"}
	var rows []ingest.Vector
	require.NoError(w.t, w.store.InTx(w.t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		for i := len(texts); i < many; i++ {
			text := fmt.Sprintf("segment %d", i)
			texts = append(texts, text)
			rows = append(rows, ingest.Vector{ID: hash(version + text), DocumentID: document, Birth: version, Values: values(i)})
			_, err := tx.ExecContext(ctx, `INSERT INTO knowledge_segment (document_id, version_id, version, segment_index, content, text_hash, vector_id, birth_version_id, heading_path, byte_start, byte_end)
				VALUES (?, ?, 1, ?, ?, ?, ?, ?, '[]', 0, 1)`, document, version, i, text, hash(text), hash(version+text), version)
			if err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(w.t, w.vectors.Upsert(w.t.Context(), base, rows))
	w.sql(`UPDATE knowledge_document SET segment_count = ? WHERE id = ?`, many, document)
	w.sql(`INSERT INTO document_count_change (base_id, status, documents, segments) VALUES (?, 'READY', 0, ?)`, base, many-2)
	w.sql(`UPDATE document_version SET segment_count = ? WHERE id = ?`, many, version)
	w.sql(`UPDATE document_version SET splitter = 'split/2' WHERE task_id = ?`, w.twin)
	w.sql(`DELETE FROM knowledge_text_part WHERE id = ?`, w.read(`SELECT MIN(id) FROM knowledge_text_part`))
	w.index(version, texts...)
}

// What does not fit into a page is judged to the last row, and mended to the last row.
func TestPagesAreReadAndMendedToTheirEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.enlarge()
	require.NoError(t, w.check().Err())

	last := hash(w.goodVersion() + fmt.Sprintf("segment %d", many-1))
	require.NoError(t, w.vectors.Delete(t.Context(), base, []string{last}))
	found := w.find()
	require.Len(t, found.Missing, 1)
	require.Equal(t, last, found.Missing[0].ID)

	ids, err := w.vectors.List(t.Context(), base, 0, 2*many)
	require.NoError(t, err)
	require.NoError(t, w.vectors.Delete(t.Context(), base, ids))
	w.sql(`DELETE FROM document_deletion WHERE document_id = ?`, tomb)
	w.sql(`DELETE FROM knowledge_document WHERE id = ?`, tomb) // with it strays could be its
	strays := make([]ingest.Vector, many)
	for i := range strays {
		strays[i] = ingest.Vector{ID: hash(fmt.Sprintf("stray %d", i)), DocumentID: tomb, Birth: tomb, Values: values(i)}
	}
	require.NoError(t, w.vectors.Upsert(t.Context(), base, strays))
	long := time.Now().Add(-26 * time.Hour)
	for range many {
		path := filepath.Join(w.dir, w.id("8005"))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chtimes(path, long, long))
	}
	w.sql(`DELETE FROM knowledge_text_part`)

	found = w.find()
	require.Len(t, found.Strays, many)
	require.Len(t, found.Missing, many+2, "and the twin's")
	require.Len(t, found.Orphans, many)
	done, err := fsck.Repair(t.Context(), w.evidence(), found, fake{})
	require.NoError(t, err)
	require.Equal(t, fsck.Repaired{Deleted: many, Written: many + 2, Paid: many - 2, Files: many, Indexes: 1, Mended: 2}, done, "two texts are in the cache")
	require.NoError(t, w.check().Err())
	require.Equal(t, 1, w.finds(fmt.Sprint(many-1)))
}

// A page of tasks is judged by a log that is read with it; the last task of the last page is as any other.
func TestTheLastTaskIsJudgedToo(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		const tasks = 620
		w.options.Rest = false
		last := ""
		for i := range tasks {
			last = w.accept(w.id("8002"), fmt.Sprintf("key-p%d", i))
		}
		require.GreaterOrEqual(t, w.check().Rule("I2").Judged, int64(tasks))
		w.unlog(`task_id = ?`, last)
		got := w.check().Rule("I2")
		require.EqualValues(t, 1, got.Violations)
		require.Equal(t, last, got.Examples[0].Task)
	})
}

// Tasks of one document in one partition begin in the order of their deliveries; whatever lies elsewhere has no order.
func TestTheOrderOfAPartitionByTheRows(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		first, second string // deliveries, in the order in which they began
		other         bool   // the second is of another document
		soon          bool   // right after the first: their loops ran side by side
		judged        int64
		bad           bool
	}{
		"in order":                  {first: "0:1700000000100-0", second: "0:1700000000500-0", judged: 1},
		"out of order":              {first: "0:1700000000500-0", second: "0:1700000000100-0", judged: 1, bad: true},
		"of one millisecond":        {first: "0:1700000000500-1", second: "0:1700000000500-0", judged: 1},
		"at the same time":          {first: "0:1700000000500-0", second: "0:1700000000100-0", soon: true, judged: 1},
		"in another partition":      {first: "0:1700000000500-0", second: "1:1700000000100-0"},
		"of another document":       {first: "0:1700000000500-0", second: "0:1700000000100-0", other: true},
		"of Kafka":                  {first: "k:0:7", second: "k:0:5"},
		"of a stream that is whole": {first: "1700000000500-0", second: "1700000000100-0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databases["sqlite"](t))
			w.options.Rest, w.moves = false, nil
			document := w.goodDocument()
			w.claim(w.accept(document, "key-8"), "w1", one.first)
			if one.other {
				document = w.id("8002")
			}
			second := w.accept(document, "key-9")
			w.claim(second, "w1", one.second)
			if !one.soon {
				w.edit(`created_at = ?`, `task_id = ? AND to_status = 'RUNNING'`, now().Add(time.Minute), second)
			}
			got := w.check().Rule("I32")
			require.Equal(t, one.judged, got.Judged)
			require.Equal(t, one.bad, got.Violations > 0, "%v", got.Examples)
		})
	}
}

// What the embedding cache has of other dimensions, or not whole, is no witness against the store.
func TestADimensionThatTheCacheHasOtherwiseIsNotCompared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.options.Deep = true
	for what, vector := range map[string][]byte{"shorter": floats([]float32{1, 0}), "cut": floats(values(1))[:7]} {
		n := len(vector) / 4
		if what == "cut" {
			n = dim
		}
		w.sql(`UPDATE embedding_ledger SET dim = ?, vector = ? WHERE text_hash = ?`, n, vector, hash("second"))
		found := w.find()
		require.NoError(t, found.Report.Err(), what)
		require.EqualValues(t, 2, found.Uncompared, "%s: that text is in two documents", what)
	}
}
