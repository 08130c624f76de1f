package query_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
)

// words returns the texts that a search for words finds, best first.
func words(t *testing.T, r *ingesttest.ReadWorld, query string, k int) (texts []string) {
	t.Helper()
	res, err := r.Reads.Search(t.Context(), r.Caller, ingest.SearchRequest{Query: query, TopK: k, Mode: ingest.SearchText})
	require.NoError(t, err)
	require.Equal(t, ingest.SearchText, res.Mode)
	for _, h := range res.Hits {
		require.Equal(t, h.Score, *h.TextScore)
		require.Nil(t, h.VectorScore)
		texts = append(texts, h.Text)
	}
	return texts
}

// The index follows the visible version: never half of one, never a deleted one, and the words of the old one are gone at once.
func TestWordsAreFoundInVisibleVersions(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		a := w.Upload("The heron waits.\nAn otter swims past the weir.\nNothing else.")
		require.Empty(t, words(t, r, "otter", 5), "before it was worked on")
		w.Process(a.Task.ID)
		require.Equal(t, []string{"An otter swims past the weir."}, words(t, r, "OTTER", 5))
		require.Empty(t, words(t, r, "badger", 5))

		b := w.Accept(ingest.Upload{DocumentID: a.Document.ID, File: w.Receive("b.txt", "A badger digs.\nThe heron waits.")})
		require.Equal(t, []string{"An otter swims past the weir."}, words(t, r, "otter", 5), "until the new one is visible")
		require.Empty(t, words(t, r, "badger", 5))
		w.Process(b.Task.ID)
		require.Empty(t, words(t, r, "otter", 5))
		require.Equal(t, []string{"A badger digs."}, words(t, r, "badger", 5))
		require.Equal(t, []string{"The heron waits."}, words(t, r, "heron", 5), "once, though two versions have it")

		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
		require.Empty(t, words(t, r, "badger heron", 5))
	})
}

// Better hits that are visible no more do not hide those behind them, however few are joined at first.
func TestHitsBehindClosedVersions(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		var old, now []string
		for n := range 12 {
			old = append(old, fmt.Sprintf("heron %d", n))
			now = append(now, fmt.Sprintf("heron %d of a longer line", n))
		}
		a := w.Upload(strings.Join(old, "\n"))
		w.Process(a.Task.ID)
		b := w.Accept(ingest.Upload{DocumentID: a.Document.ID, File: w.Receive("b.txt", strings.Join(now, "\n"))})
		w.Process(b.Task.ID)
		require.Equal(t, now[:1], words(t, r, "heron", 1))
		require.Equal(t, now[:5], words(t, r, "heron", 5))
		require.Equal(t, now, words(t, r, "heron", 50))
	})
}

// A version that becomes visible between two statements of a search never stands in its result beside the one before.
func TestASwitchBetweenStatementsIsSeen(t *testing.T) {
	t.Parallel()
	for before, world := range map[int]struct{ closed, k int }{2: {1, 5}, 5: {33, 50}} {
		t.Run(fmt.Sprintf("before statement %d", before), func(t *testing.T) {
			t.Parallel()
			switchBetweenStatements(t, world.closed, before, world.k)
		})
	}
}

// switchBetweenStatements makes a version visible before one of the statements that join hits, and searches.
func switchBetweenStatements(t *testing.T, closed, before, k int) {
	t.Helper()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		lines := func(n int, format string) string {
			var out []string
			for i := range n {
				out = append(out, fmt.Sprintf(format, i))
			}
			return strings.Join(out, "\n")
		}
		renew := func(a ingest.Accepted, text string) ingest.Accepted {
			return w.Accept(ingest.Upload{DocumentID: a.Document.ID, File: w.Receive("b.txt", text)})
		}
		for n := range closed { // rows that the index names, and nobody sees any more: they fill statements
			x := w.Upload(lines(8, fmt.Sprintf("heron %d-%%d", n)))
			w.Process(x.Task.ID)
			w.Process(renew(x, fmt.Sprintf("nothing %d", n)).Task.ID)
		}
		a := w.Accept(ingest.Upload{File: w.Receive("a.txt", "heron\nheron heron")}) // the best hits
		w.Process(a.Task.ID)
		job, _ := w.Claim(renew(a, lines(6, "heron %d of a longer line")).Task.ID)
		res := w.Handler.Handle(t.Context(), job)
		require.NoError(t, res.Err)
		joins := 0
		w.Store.Database.Watch = func(query string, done bool) error {
			if done || !strings.Contains(query, "s.text_hash") || !strings.Contains(query, "v.closed_at >") {
				return nil
			}
			if joins++; joins == before {
				_, err := w.Finish(t.Context(), job, res)
				return err
			}
			return nil
		}
		found := words(t, r, "heron", k)
		w.Store.Database.Watch = nil
		require.GreaterOrEqual(t, joins, before)
		for _, text := range found {
			require.Equal(t, strings.Contains(found[0], "longer"), strings.Contains(text, "longer"), "%q", found)
		}
	})
}

// Every word that stands in one visible segment alone is found first, on each database, before and after parts were merged.
func TestEveryWordIsFoundBeforeAndAfterAMerge(t *testing.T) {
	t.Parallel()
	const documents, segments = 20, 5
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		for d := range documents {
			var lines []string
			for s := range segments {
				lines = append(lines, fmt.Sprintf("common words and the rare%dx%d one", d, s))
			}
			w.Process(w.Accept(ingest.Upload{File: w.Receive(fmt.Sprintf("%d.txt", d), strings.Join(lines, "\n"))}).Task.ID)
		}
		all := func() {
			for d := range documents {
				for s := range segments {
					want := fmt.Sprintf("common words and the rare%dx%d one", d, s)
					require.Equal(t, want, words(t, r, fmt.Sprintf("common rare%dx%d", d, s), 10)[0])
				}
			}
		}
		all()
		doc, err := r.Reads.Bases(t.Context(), w.Caller, ingest.ListQuery{Limit: 1})
		require.NoError(t, err)
		base := doc[0].ID
		before, _, err := w.App.Index.Stats(t.Context(), base)
		require.NoError(t, err)
		require.Equal(t, documents*segments, before)
		merged, err := w.App.Index.MergeGrown(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, merged, documents-8)
		after, _, err := w.App.Index.Stats(t.Context(), base)
		require.NoError(t, err)
		require.Equal(t, before, after)
		all()
	})
}

// What is visible no more goes with a merge.
func TestAMergeLeavesClosedVersionsOut(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		a := w.Upload("version 0")
		w.Process(a.Task.ID)
		for n := range 10 {
			w.Process(w.Accept(ingest.Upload{DocumentID: a.Document.ID, File: w.Receive("b.txt", fmt.Sprintf("version %d", n+1))}).Task.ID)
		}
		_, err := w.App.Index.MergeGrown(t.Context())
		require.NoError(t, err)
		left, _, err := w.App.Index.Stats(t.Context(), a.Document.BaseID)
		require.NoError(t, err)
		require.Equal(t, 1, left)
		require.Equal(t, []string{"version 10"}, words(t, r, "version", 10))
	})
}

// A hybrid search fuses both parts, says what each found, and does without vectors when they are lost.
func TestHybridSearch(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		a := w.Upload("one\ntwo\nthree")
		w.Process(a.Task.ID)
		res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "two"})
		require.NoError(t, err)
		require.Equal(t, ingest.SearchHybrid, res.Mode)
		require.Len(t, res.Hits, 3)
		require.Equal(t, "two", res.Hits[0].Text)
		require.NotNil(t, res.Hits[0].TextScore)
		require.NotNil(t, res.Hits[0].VectorScore)
		require.Equal(t, [][2]int{{0, 3}}, res.Hits[0].Highlights)
		require.Nil(t, res.Hits[1].TextScore)

		require.NoError(t, w.Vectors.Drop(t.Context(), a.Document.BaseID))
		res, err = r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "two"})
		require.NoError(t, err)
		require.True(t, res.Partial)
		require.Len(t, res.Hits, 1)
		require.Equal(t, "two", res.Hits[0].Text)
	})
}

// A misspelt word finds the word that it is one edit away from, and the answer says which.
func TestAMisspeltWord(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	r := ingesttest.NewReadWorld(t, w)
	w.Process(w.Upload("The zeppelin drifts above the town.\nAnother sentence entirely.").Task.ID)
	for _, query := range []string{"zepelin", "zeppelni", "zeppelxin", "zappelin"} {
		res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: query, Mode: ingest.SearchText})
		require.NoError(t, err)
		require.Len(t, res.Hits, 1, query)
		require.Equal(t, "zeppelin", res.Suggestion, query)
		require.Equal(t, [][2]int{{4, 12}}, res.Hits[0].Highlights, query)
	}
	w.Process(w.Upload("Die Donaudampfschifffahrt ruht.").Task.ID)
	require.Equal(t, []string{"Die Donaudampfschifffahrt ruht."}, words(t, r, "Dampfschiff", 5), "a part of a compound that stands nowhere alone")
	res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "zaxpelin", Mode: ingest.SearchText})
	require.NoError(t, err)
	require.Empty(t, res.Hits)
	require.Empty(t, res.Suggestion)
}

// What is older than the index is added by a sweep; what an index lacks, by Reindex, which may be run again.
func TestWhatTheIndexLacksIsAdded(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		first, second := w.Upload("An otter swims.\nThe heron waits."), w.Upload("A badger digs.")
		w.Process(first.Task.ID)
		w.Process(second.Task.ID)
		gaps := func() (missing int) {
			_, err := w.App.Index.Check(t.Context(), "", func(g textindex.Gap) error {
				missing += len(g.Missing)
				require.Zero(t, g.Extra)
				return nil
			})
			require.NoError(t, err)
			return missing
		}
		require.Zero(t, gaps())

		w.Exec("DELETE FROM knowledge_text_part")
		require.Empty(t, words(t, r, "otter badger", 5))
		require.Equal(t, 3, gaps())
		_, err := w.App.Index.Tidy(t.Context())
		require.NoError(t, err)
		require.Len(t, words(t, r, "otter badger", 5), 2)
		require.Zero(t, gaps())

		w.Exec("DELETE FROM knowledge_text_part")
		w.Process(w.Upload("A third one.").Task.ID)
		for _, want := range []int{2, 0} {
			added := 0
			require.NoError(t, w.App.Index.Reindex(t.Context(), first.Document.BaseID, func(textindex.Gap) { added++ }))
			require.Equal(t, want, added)
		}
		require.Len(t, words(t, r, "otter badger third", 5), 3)
	})
}

// The rows of hits are looked up one by one, also while the database's statistics know nothing of documents that have just come.
func TestHitsAreJoinedByTheirKeys(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Database: labserver.MySQLDatabase(t)})
	r := ingesttest.NewReadWorld(t, w)
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprintf("otter %d", i)
	}
	documents := []catalog.DocumentRow{w.Document(lines(w, many...)), w.Document(lines(w, many[1:]...))}
	places, keys := []any{documents[0].BaseID, time.Now()}, []any{documents[0].BaseID, time.Now()}
	const most = 200 // places of one statement
	for i := range most {
		places = append(places, documents[i%2].VisibleID, 3*i)
	}
	texts := func(query string, args ...any) []string {
		out, err := sqldb.Collect(t.Context(), w.Store.DB(), func(rows *sql.Rows) (text string, err error) { return text, rows.Scan(&text) }, query, args...)
		require.NoError(t, err)
		return out
	}
	var around []any
	for i := range 50 {
		around = append(around, documents[i%2].VisibleID, 3*i, 3*i+2)
	}
	for _, key := range texts("SELECT vector_id FROM knowledge_segment") {
		keys = append(keys, key)
	}
	for _, of := range []struct {
		want   string
		tables int
		query  string
		args   []any
	}{
		{"s range uq_segment_index 40", 3, r.Reads.TextJoin(most), places},
		{"s range ix_segment_vector 64", 3, r.Reads.SearchJoin(len(keys) - 2), keys}, // MariaDB makes a table of a list that is as long
		{"s range uq_segment_index 40", 2, r.Reads.SearchAround(50), around},
	} {
		var explained struct {
			Block struct {
				Loop []struct {
					Table struct {
						Name  string `json:"table_name"`
						Type  string `json:"access_type"`
						Key   string `json:"key"`
						Bytes string `json:"key_length"`
					} `json:"table"`
				} `json:"nested_loop"`
			} `json:"query_block"`
		}
		require.NoError(t, json.Unmarshal([]byte(texts("EXPLAIN FORMAT=JSON "+of.query, of.args...)[0]), &explained))
		require.Len(t, explained.Block.Loop, of.tables, of.query)
		first := explained.Block.Loop[0].Table
		require.Equal(t, of.want, fmt.Sprint(first.Name, " ", first.Type, " ", first.Key, " ", first.Bytes))
	}
}
