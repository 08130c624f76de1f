package fsck_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/taskstate"
)

// flip changes a byte of the first row of a table of the full-text index.
func (w *world) flip(table, column string) {
	w.t.Helper()
	var id string
	var raw []byte
	err := w.store.Reader().QueryRowContext(w.t.Context(), `SELECT `+key(table)+`, `+column+` FROM `+table+` ORDER BY 1 LIMIT 1`).Scan(&id, &raw)
	require.NoError(w.t, err)
	raw = slices.Clone(raw)
	raw[len(raw)/3] ^= 0x10
	w.sql(`UPDATE `+table+` SET `+column+` = ? WHERE `+key(table)+` = ?`, raw, id)
}

func key(table string) string {
	if table == "knowledge_text_chunk" {
		return "part_id"
	}
	return "id"
}

// lengthen gives all versions another text that makes a part of two chunks, and returns a word that it alone has.
func (w *world) lengthen() (word string) {
	var long strings.Builder
	for i := range 5000 {
		_, _ = fmt.Fprintf(&long, "word%dof%d ", i, i*i)
	}
	text := long.String()
	w.sql(`UPDATE knowledge_segment SET content = ?, text_hash = ? WHERE segment_index = 1`, text, hash(text))
	w.sql(`DELETE FROM knowledge_text_part`)
	for _, task := range []string{w.good, w.twin} {
		w.index(w.read(`SELECT id FROM document_version WHERE task_id = ?`, task), "first", text)
	}
	return "word4999of" + fmt.Sprint(4999*4999)
}

// finds is how many segments a search for a word finds; nothing is remembered from an earlier one.
func (w *world) finds(word string) int {
	w.t.Helper()
	found, err := textindex.New(w.store).Search(w.t.Context(), base, word, 10, nil)
	require.NoError(w.t, err)
	return len(found.Found)
}

// indexDamages are ways in which the full-text index of the good document and its twin can be wrong.
var indexDamages = []struct {
	name  string
	spoil func(w *world)
	flaws int64 // a damaged part, and each version that lacks segments
}{
	{"all parts are lost", func(w *world) { w.sql(`DELETE FROM knowledge_text_part`) }, 2},
	{"a part is lost", func(w *world) { w.sql(`DELETE FROM knowledge_text_part WHERE id = ?`, w.textPart()) }, 1},
	{"a chunk is lost", func(w *world) { w.sql(`DELETE FROM knowledge_text_chunk WHERE part_id = ?`, w.textPart()) }, 2},
	{"a chunk is cut", func(w *world) {
		w.sql(`UPDATE knowledge_text_chunk SET data = ? WHERE part_id = ?`, []byte("x"), w.textPart())
	}, 2},
	{"a byte of a chunk", func(w *world) { w.flip("knowledge_text_chunk", "data") }, 2},
	{"a byte of a head", func(w *world) { w.flip("knowledge_text_part", "head") }, 2},
	{"a count of a part", func(w *world) { w.sql(`UPDATE knowledge_text_part SET tokens = 1 WHERE id = ?`, w.textPart()) }, 2},
	{"part of another base", func(w *world) { w.sql(`UPDATE knowledge_text_part SET base_id = ? WHERE id = ?`, tomb, w.textPart()) }, 1},
	{"words of another text", func(w *world) { w.sql(`DELETE FROM knowledge_text_part`); w.index(w.goodVersion(), "first", "other") }, 2},
}

// textPart is the first part of the index that has several chunks.
func (w *world) textPart() string { return w.read(`SELECT MIN(part_id) FROM knowledge_text_chunk`) }

// Each way in which the full-text index can be damaged is found and mended from the rows; then the word is found again.
func TestADamagedFullTextIndexIsFoundAndMended(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		word := w.lengthen()
		require.Equal(t, 2, w.finds(word))
		require.NoError(t, w.check().Err(), "whole before")
		for _, one := range indexDamages {
			one.spoil(w)
			found := w.find()
			require.Equal(t, one.flaws, found.Report.Rule("I37").Violations, "%s: %v", one.name, found.Report.Rule("I37").Examples)
			require.Equal(t, one.flaws, found.Report.Violations(), "%s: and no other rule's", one.name)
			require.Equal(t, []fsck.Unindexed{{Base: base, Flaws: one.flaws}}, found.Unindexed, one.name)

			done, err := fsck.Repair(t.Context(), w.evidence(), found)
			require.NoError(t, err, one.name)
			require.Equal(t, fsck.Repaired{Indexes: 1, Mended: one.flaws}, done, one.name)
			require.NoError(t, w.check().Err(), "%s: whole again", one.name)
			require.Equal(t, 2, w.finds(word), one.name)
			require.Zero(t, w.finds("third"), one.name)
			// What a lost part leaves goes with a sweep.
			w.sql(`DELETE FROM knowledge_text_chunk WHERE part_id NOT IN (SELECT id FROM knowledge_text_part)`)
		}
		// Words of segments that a later run of the version has replaced are no damage.
		w.index(w.goodVersion(), "first", "second", "third")
		require.NoError(t, w.check().Err())
	})
}

// A repair of the index that cannot be done says so, and leaves the index as it is.
func TestAnIndexThatCannotBeMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.sql(`DELETE FROM knowledge_text_part`)
	found := w.find()
	e := w.evidence()
	e.DB = struct{ fsck.DB }{w.store}
	done, err := fsck.Repair(t.Context(), e, found)
	require.NoError(t, err)
	require.Equal(t, fsck.Repaired{Left: []string{"full-text index of base " + base + ": the database is only looked at"}}, done)

	e.DB = fullDisk{w.store}
	_, err = fsck.Repair(t.Context(), e, found)
	require.ErrorContains(t, err, "mend the full-text index: base "+base+": index version")
	require.ErrorIs(t, err, errAway)
	require.EqualValues(t, 2, w.check().Rule("I37").Violations)

	w.sql(`DROP TABLE knowledge_text_part`)
	_, err = fsck.Check(t.Context(), w.evidence(), w.options)
	require.ErrorContains(t, err, "check the full-text index: text index of base "+base)
}

// fullDisk is a database that can be read.
type fullDisk struct{ fsck.DB }

func (fullDisk) InTx(context.Context, taskstate.TxFunc) error { return errAway }
