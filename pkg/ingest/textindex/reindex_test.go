package textindex_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/taskstate"
)

// longText is a document of so many segments, the words of which stand in one of them alone; its part has several chunks.
func longText(segments int) string {
	var out strings.Builder
	for s := range segments {
		for w := range 90 {
			_, _ = fmt.Fprintf(&out, "long%dx%d ", s, w)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// uploaded processes a document and returns its base and version.
func uploaded(w *ingesttest.World, text string) (base, version string) {
	a := w.Upload(text)
	w.Process(a.Task.ID)
	return a.Document.BaseID, w.Document(a.Document.ID).VisibleID
}

// gaps are what a new look at the index finds, in words. Nothing of it is known from an earlier look.
func gaps(t *testing.T, w *ingesttest.World) (out []string) {
	judged, err := textindex.New(w.Store).Check(t.Context(), "", func(g textindex.Gap) error {
		if g.Part != "" {
			out = append(out, damagedPart)
		} else {
			require.NotEmpty(t, g.Document)
			out = append(out, fmt.Sprintf("%d missing, %d extra", len(g.Missing), g.Extra))
		}
		return nil
	})
	require.NoError(t, err)
	require.NotZero(t, judged)
	return out
}

// finds is how many segments a word is found in.
func finds(t *testing.T, w *ingesttest.World, base, word string) int {
	found, err := textindex.New(w.Store).Search(t.Context(), base, word, 10, nil)
	require.NoError(t, err)
	return len(found.Found)
}

// flip changes a byte of the first row that a query finds.
func flip(w *ingesttest.World, table, column, where string) {
	var raw []byte
	require.NoError(w.T, w.Store.Reader().QueryRowContext(w.T.Context(), "SELECT "+column+" FROM "+table+" WHERE "+where).Scan(&raw))
	raw = append([]byte(nil), raw...)
	raw[len(raw)/2] ^= 1
	w.Exec("UPDATE "+table+" SET "+column+" = ? WHERE "+where, raw)
}

// spoils are ways in which an index of two documents, one of them long, can be wrong. The last ones change rows.
var spoils = []struct {
	name string
	do   func(w *ingesttest.World)
	want []string
}{
	{"a part is lost", func(w *ingesttest.World) { w.Exec("DELETE FROM knowledge_text_part WHERE " + ofLong) }, []string{lacksLong}},
	{"all parts are lost", func(w *ingesttest.World) { w.Exec("DELETE FROM knowledge_text_part") }, []string{lacksLong, lacksShort}},
	{"a chunk is lost", func(w *ingesttest.World) { w.Exec("DELETE FROM knowledge_text_chunk WHERE seq = 1") }, []string{damagedPart, lacksLong}},
	{"a chunk is cut", func(w *ingesttest.World) {
		w.Exec("UPDATE knowledge_text_chunk SET data = ? WHERE seq = 1", []byte("x"))
	}, []string{damagedPart, lacksLong}},
	{"a byte of a chunk", func(w *ingesttest.World) { flip(w, "knowledge_text_chunk", "data", "seq = 1") }, []string{damagedPart, lacksLong}},
	{"a byte of a head", func(w *ingesttest.World) { flip(w, "knowledge_text_part", "head", ofShort) }, []string{damagedPart, lacksShort}},
	{"a wrong count", func(w *ingesttest.World) {
		w.Exec("UPDATE knowledge_text_part SET segments = 3 WHERE " + ofShort)
	}, []string{damagedPart, lacksShort}},
	{"a wrong size", func(w *ingesttest.World) {
		w.Exec("UPDATE knowledge_text_part SET bytes = bytes + 1 WHERE " + ofShort)
	}, []string{damagedPart, lacksShort}},
	{"words have no row", func(w *ingesttest.World) {
		flip(w, "knowledge_text_part", "head", ofShort)
		w.Exec("DELETE FROM knowledge_segment WHERE content LIKE 'long119%'")
	}, []string{damagedPart, lacksShort, "0 missing, 1 extra"}},
	{"a row has another text", func(w *ingesttest.World) {
		w.Exec("UPDATE knowledge_segment SET text_hash = ? WHERE content = 'A badger digs.'", strings.Repeat("ab", 32))
	}, []string{"1 missing, 1 extra"}},
}

// Parts by their documents, and what is found of them.
const (
	ofLong, ofShort       = "segments > 100", "segments = 2"
	damagedPart           = "damaged part"
	lacksLong, lacksShort = "120 missing, 0 extra", "2 missing, 0 extra"
)

// Whatever is wrong with an index is found, and mended from the rows: what was damaged goes, nothing is left behind.
func TestADamagedIndexIsFoundAndReplaced(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		base, _ := uploaded(w, longText(120))
		uploaded(w, "An otter swims.\nA badger digs.")
		require.Empty(t, gaps(t, w))
		orphans := func() int {
			return w.Number("SELECT COUNT(*) FROM knowledge_text_chunk WHERE part_id NOT IN (SELECT id FROM knowledge_text_part)")
		}
		for _, s := range spoils {
			s.do(w)
			require.ElementsMatch(t, s.want, gaps(t, w), s.name)
			before := orphans() // of a part that is lost they go with the sweep
			require.NoError(t, textindex.New(w.Store).Reindex(t.Context(), base, nil), s.name)
			require.Empty(t, gaps(t, w), s.name)
			for _, word := range []string{"otter", "badger", "long0x7", "long118x29"} {
				require.Equal(t, 1, finds(t, w, base, word), "%s: %s", s.name, word)
			}
			require.Equal(t, before, orphans(), "%s: chunks without a part", s.name)
			w.Exec("DELETE FROM knowledge_text_chunk WHERE part_id NOT IN (SELECT id FROM knowledge_text_part)")
		}
	})
}

// A part is removed after what it had was added: whoever is stopped in between leaves words twice, and the next one ends it.
func TestAReindexThatIsStoppedLosesNoWord(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		base, version := uploaded(w, "An otter swims.\nA badger digs.")
		w.Exec("DELETE FROM knowledge_segment WHERE content = 'An otter swims.'")
		ctx, stop := context.WithCancel(t.Context())
		err := textindex.New(w.Store).Reindex(ctx, base, func(g textindex.Gap) {
			require.Equal(t, version, g.Version, "first what the part had")
			stop()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2, finds(t, w, base, "badger"), "old and new")
		require.Equal(t, []string{"0 missing, 1 extra"}, gaps(t, w))

		var removed []string
		require.NoError(t, textindex.New(w.Store).Reindex(t.Context(), base, func(g textindex.Gap) { removed = append(removed, g.Part) }))
		require.Len(t, removed, 1)
		require.NotEmpty(t, removed[0], "nothing was missing")
		require.Equal(t, 1, finds(t, w, base, "badger"))
		require.Zero(t, finds(t, w, base, "otter"))
		require.Empty(t, gaps(t, w))
	})
}

// A version that is still worked on has rows whose words are in a part: they are added again before the part is removed.
func TestAReindexKeepsTheWordsOfVersionsThatComeNext(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		base, version := uploaded(w, "An otter swims.\nA badger digs.")
		w.Exec("UPDATE document_version SET state = 'BUILDING'")
		w.Exec("UPDATE knowledge_document SET visible_version_id = NULL")
		w.Exec("UPDATE knowledge_text_part SET tokens = 99")
		require.Equal(t, []string{"damaged part"}, gaps(t, w))
		require.NoError(t, textindex.New(w.Store).Reindex(t.Context(), base, nil))
		w.Exec("UPDATE document_version SET state = 'VISIBLE'")
		w.Exec("UPDATE knowledge_document SET visible_version_id = ?", version)
		require.Empty(t, gaps(t, w))
		require.Equal(t, 1, finds(t, w, base, "badger"))
	})
}

// meanwhile does something once, right before the first statement that has a text.
func meanwhile(w *ingesttest.World, text string, do func()) (done func() bool) {
	var once atomic.Bool
	w.Store.Database.Watch = func(query string, after bool) error {
		if !after && strings.Contains(query, text) && once.CompareAndSwap(false, true) {
			do()
		}
		return nil
	}
	w.T.Cleanup(func() { w.Store.Database.Watch = nil })
	return once.Load
}

// What moves while a check reads is no gap.
func TestACheckBesidesWorkFindsNothing(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]struct {
		before string // the statement
		do     func(w *ingesttest.World, first ingest.Accepted)
	}{
		"a version becomes visible": {"visible_version_id >", func(w *ingesttest.World, _ ingest.Accepted) { uploaded(w, "A heron waits.") }},
		"a version is closed": {"text_hash FROM", func(w *ingesttest.World, first ingest.Accepted) {
			w.Process(w.Accept(ingest.Upload{DocumentID: first.Document.ID, File: w.Receive("b.txt", "A badger digs.")}).Task.ID)
			w.Exec("DELETE FROM knowledge_segment WHERE version_id IN (SELECT id FROM document_version WHERE state = 'SUPERSEDED')")
		}},
		"a document is deleted": {"text_hash FROM", func(w *ingesttest.World, first ingest.Accepted) {
			require.NoError(w.T, w.App.DeleteDocument(w.T.Context(), w.Caller, first.Document.ID))
			w.Exec("DELETE FROM knowledge_segment WHERE document_id = ?", first.Document.ID)
		}},
		"parts are merged": {"0, head", func(w *ingesttest.World, _ ingest.Accepted) {
			n, err := w.App.Index.MergeGrown(w.T.Context())
			require.NoError(w.T, err)
			require.Positive(w.T, n)
		}},
		"parts are merged before their chunks": {"data FROM", func(w *ingesttest.World, _ ingest.Accepted) {
			n, err := w.App.Index.MergeGrown(w.T.Context())
			require.NoError(w.T, err)
			require.Positive(w.T, n)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
				first := w.Upload("An otter swims.\n" + longText(100))
				w.Process(first.Task.ID)
				for i := range 10 {
					uploaded(w, fmt.Sprintf("An otter swims %d times.\n", i)+longText(100))
				}
				done := meanwhile(w, work.before, func() { work.do(w, first) })
				require.Empty(t, gaps(t, w))
				require.True(t, done(), "there was no such statement")
			})
		})
	}
}

// A damaged part is not merged, or its wrong bytes would get a right checksum; parts of other bases are.
func TestADamagedPartIsNotMerged(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		const parts = 8
		x := textindex.New(w.Store)
		for _, base := range []string{base, base[:35] + "b"} {
			require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
				var all []*textindex.Batch
				for i := range parts {
					version := fmt.Sprintf("00000000-0000-7000-8000-%012d", i)
					all = append(all, textindex.Build(base, []textindex.Text{{Version: version, TextHash: strings.Repeat("0", 64), Text: "An otter swims."}}))
				}
				return x.Add(ctx, tx, m.Now, all...)
			}))
		}
		flip(w, "knowledge_text_part", "head", "id = (SELECT MIN(id) FROM (SELECT id FROM knowledge_text_part) p)")
		n, err := textindex.New(w.Store).MergeGrown(t.Context())
		require.ErrorContains(t, err, "merge the text index of "+base)
		require.Equal(t, parts, n, "the other base's")
		require.Equal(t, parts, w.Number("SELECT COUNT(*) FROM knowledge_text_part"), "no version is alive of the other base's")
	})
}
