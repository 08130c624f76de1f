package query_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/query"
)

// lines makes a document of lines and returns its id.
func lines(w *ingesttest.World, text ...string) string {
	a := w.Accept(ingest.Upload{File: w.Receive("a.txt", strings.Join(text, "\n"))})
	w.Process(a.Task.ID)
	return a.Document.ID
}

// search is a search that must not fail.
func search(t *testing.T, r *ingesttest.ReadWorld, req ingest.SearchRequest) ingest.SearchResult {
	t.Helper()
	res, err := r.Reads.Search(t.Context(), r.Caller, req)
	require.NoError(t, err)
	return res
}

// everyMode runs a test for each mode.
func everyMode(t *testing.T, test func(mode ingest.SearchMode)) {
	t.Helper()
	for _, mode := range []ingest.SearchMode{ingest.SearchText, ingest.SearchVector, ingest.SearchHybrid} {
		test(mode)
	}
}

// A filter holds in every mode, and nothing that it leaves out makes the answer partial.
func TestFilters(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		var ids []string
		var times []time.Time
		for n := range 4 {
			ids = append(ids, lines(w, fmt.Sprintf("an otter %d", n), fmt.Sprintf("a heron %d", n)))
			w.Advance(time.Second)
			d, err := r.Reads.Document(t.Context(), w.Caller, ids[n])
			require.NoError(t, err)
			times = append(times, d.CreatedAt)
		}
		w.Exec("UPDATE knowledge_document SET media_type = 'application/pdf' WHERE id = ?", ids[1])
		everyMode(t, func(mode ingest.SearchMode) {
			for name, c := range map[string]struct {
				filter ingest.SearchFilter
				want   []string
			}{
				"none":       {ingest.SearchFilter{}, ids},
				"one":        {ingest.SearchFilter{Documents: ids[2:3]}, ids[2:3]},
				"several":    {ingest.SearchFilter{Documents: []string{ids[3], ids[0], ids[3], "0190a6e0-0000-7000-8000-000000000001"}}, []string{ids[0], ids[3]}},
				"unknown":    {ingest.SearchFilter{Documents: []string{"0190a6e0-0000-7000-8000-000000000001"}}, nil},
				"media type": {ingest.SearchFilter{MediaTypes: []string{"application/pdf", "x/y"}}, ids[1:2]},
				"time":       {ingest.SearchFilter{Times: ingest.Times{CreatedAfter: times[0], CreatedBefore: times[3]}}, ids[1:3]},
				"changed":    {ingest.SearchFilter{Times: ingest.Times{UpdatedAfter: times[3].Add(time.Hour)}}, nil},
				"all of it":  {ingest.SearchFilter{Documents: ids[1:3], MediaTypes: []string{"text/plain"}, Times: ingest.Times{CreatedAfter: times[0]}}, ids[2:3]},
			} {
				res := search(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, Filter: c.filter, TopK: 20})
				found := map[string]bool{}
				for _, h := range res.Hits {
					found[h.DocumentID] = true
				}
				require.Len(t, found, len(c.want), "%s %s", mode, name)
				for _, id := range c.want {
					require.True(t, found[id], "%s %s", mode, name)
				}
				require.False(t, res.Partial, "%s %s", mode, name)
				require.Nil(t, res.Next, "%s %s", mode, name)
			}
		})
		// A new version has other words, and is found by the same filter.
		next := w.Accept(ingest.Upload{DocumentID: ids[0], File: w.Receive("b.txt", "a badger")})
		w.Process(next.Task.ID)
		everyMode(t, func(mode ingest.SearchMode) {
			res := search(t, r, ingest.SearchRequest{Query: "badger", Mode: mode, Filter: ingest.SearchFilter{Documents: ids[:1]}})
			require.Len(t, res.Hits, 1, mode)
			require.Equal(t, "a badger", res.Hits[0].Text)
		})
	})
}

// metadata accepts a version of a document (empty: a new one) with metadata, and works it through.
func metadata(w *ingesttest.World, document, text string, m ingest.Metadata) string {
	a := w.Accept(ingest.Upload{DocumentID: document, File: w.Receive("a.txt", text), Metadata: m})
	w.Process(a.Task.ID)
	return a.Document.ID
}

// A document is found by what was said of it, value by value: texts are not numbers, and what looks like SQL is a text.
func TestFilterByMetadata(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		said := map[string]ingest.Metadata{
			"de": `{"lang":"de","year":2024,"draft":true}`, "en": `{"lang":"en","year":1999.5,"draft":false}`, "old": `{"lang":"de","year":-44,"n":-0.25}`,
			"text": `{"year":"2024","lang":"de "}`, "sql": `{"lang":"' OR '1'='1","note":"a\\\"%_!?\n\u00e4🐳","n":9007199254740991}`, "none": "", "empty": `{}`,
		}
		names := map[string]string{}
		for name, m := range said {
			names[metadata(w, "", "an otter of "+name, m)] = name
		}
		everyMode(t, func(mode ingest.SearchMode) {
			for filter, want := range map[string]string{
				`{"lang":"de"}`: "de old", `{"lang":"de "}`: "text", `{"lang":"DE"}`: "", `{"Lang":"de"}`: "", `{"none":"de"}`: "",
				`{"lang":["de","en","fr"]}`: "de en old", `{"lang":"de","draft":true}`: "de", `{"lang":"de","year":1999.5}`: "",
				`{"year":2024}`: "de", `{"year":2024.0}`: "de", `{"year":"2024"}`: "text", `{"year":[2024,"2024"]}`: "de text",
				`{"year":{"gte":1999.5}}`: "de en", `{"year":{"gte":-44,"lte":1999.5}}`: "en old", `{"year":{"lte":-43.9}}`: "old", `{"year":{"gte":5,"lte":4}}`: "",
				`{"year":{"gte":"2"}}`: "text", `{"lang":{"gte":"de","lte":"de"}}`: "de old", `{"lang":{"gte":"de","lte":"dz"}}`: "de old text",
				`{"draft":false}`: "en", `{"draft":"false"}`: "", `{"draft":0}`: "", `{"n":-0.25}`: "old", `{"n":{"gte":9007199254740991}}`: "sql",
				`{"lang":"' OR '1'='1"}`: "sql", `{"note":"a\\\"%_!?\nä🐳"}`: "sql", `{"note":"%"}`: "",
			} {
				var wanted map[string]any
				require.NoError(t, json.Unmarshal([]byte(filter), &wanted))
				rules, err := ingest.ParseMetadataRules("metadata", wanted)
				require.NoError(t, err)
				res := search(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, Filter: ingest.SearchFilter{Metadata: rules}, TopK: 20})
				var found []string
				for _, h := range res.Hits {
					found = append(found, names[h.DocumentID])
				}
				slices.Sort(found)
				require.Equal(t, want, strings.Join(found, " "), "%s %s", mode, filter)
				require.False(t, res.Partial, "%s %s", mode, filter)
			}
		})
	})
}

// Metadata belongs to a version, as its title does: it changes for readers and filters in the moment in which the version is
// visible, stays when an upload says nothing, and goes with the document.
func TestMetadataOfVersions(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		shows := func(id string, want ingest.Metadata) {
			t.Helper()
			d, err := r.Reads.Document(t.Context(), w.Caller, id)
			require.NoError(t, err)
			require.Equal(t, want, d.Metadata)
			all := search(t, r, ingest.SearchRequest{Query: "otter", Mode: ingest.SearchText})
			require.Len(t, all.Hits, 1)
			require.Equal(t, want, all.Hits[0].Metadata)
			for _, value := range []string{"a", "b", "c"} {
				wanted, err := ingest.ParseMetadataRules("metadata", map[string]any{"k": value})
				require.NoError(t, err)
				everyMode(t, func(mode ingest.SearchMode) {
					found := search(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, Filter: ingest.SearchFilter{Metadata: wanted}})
					require.Equal(t, strings.Contains(string(want), value), len(found.Hits) == 1, "%s %s", mode, value)
				})
			}
		}
		const a, b, c = `{"k":"a"}`, `{"k":"b"}`, `{"k":"c"}`
		first := w.Accept(ingest.Upload{File: w.Receive("a.txt", "an otter"), Metadata: ` { "k" : "a" } `})
		id := first.Document.ID
		require.EqualValues(t, a, first.Document.Metadata, "nothing is visible: it is the newest upload's")
		w.Process(first.Task.ID)
		shows(id, a)

		next := w.Accept(ingest.Upload{DocumentID: id, File: w.Receive("a.txt", "an otter, take two"), Metadata: b})
		require.EqualValues(t, a, next.Document.Metadata)
		shows(id, a)
		w.Process(next.Task.ID)
		shows(id, b)
		metadata(w, id, "an otter, take three", "")
		shows(id, b)
		same := w.Accept(ingest.Upload{File: w.Receive("a.txt", "an otter, take three"), Metadata: c})
		require.True(t, same.Duplicate, "the same bytes change nothing")
		shows(id, b)
		forced := w.Accept(ingest.Upload{File: w.Receive("a.txt", "an otter, take three"), Metadata: c, Force: true})
		w.Process(forced.Task.ID)
		shows(id, c)

		// A version that never became visible leaves no trace, and its replay brings its metadata along.
		dead := w.Accept(ingest.Upload{DocumentID: id, File: w.Receive("a.txt", "an otter, take four"), Metadata: b})
		_, err := w.App.Cancel(t.Context(), w.Caller, dead.Task.ID)
		require.NoError(t, err)
		shows(id, c)
		_, err = w.App.Retry(t.Context(), w.Caller, dead.Task.ID)
		require.NoError(t, err)
		w.Process(dead.Task.ID)
		shows(id, b)
		metadata(w, id, "an otter, take five", `{}`)
		shows(id, `{}`)

		metadata(w, id, "an otter, take six", b)
		w.Advance(time.Hour)
		w.SweepAll()
		require.EqualValues(t, 1, w.Number("SELECT COUNT(*) FROM document_metadata"), "closed versions have none")
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, id))
		w.SweepAll()
		require.Zero(t, w.Number("SELECT COUNT(*) FROM document_version"))
		require.Zero(t, w.Number("SELECT COUNT(*) FROM document_metadata"))
	})
}

// A filter that selects many documents finds what stands behind thousands of better hits, and MaxHits of them can be paged through.
func TestAFilterOfManyDocuments(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		many := make([]string, 2100)
		for i := range many {
			many[i] = fmt.Sprintf("otter %d", i)
		}
		lines(w, many...)
		wanted := lines(w, "an otter in a long line that counts less than the short ones do")
		w.Exec("UPDATE knowledge_document SET media_type = 'application/pdf' WHERE id = ?", wanted)
		for n := range 11 {
			var rows []string
			for i := range 100 {
				id := fmt.Sprintf("0190a6e0-0000-7000-8000-%012d", 100*n+i)
				rows = append(rows, fmt.Sprintf("SELECT '%s', user_id, base_id, title, file_name, media_type, status, bytes, content_sha256, '%s', latest_task_id, created_at, updated_at, sweep_at FROM knowledge_document WHERE id = '%s'", id, id, wanted))
			}
			w.Exec(`INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, bytes, content_sha256, visible_version_id,
				latest_task_id, created_at, updated_at, sweep_at) ` + strings.Join(rows, " UNION ALL "))
		}
		everyMode(t, func(mode ingest.SearchMode) {
			res := search(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, Filter: ingest.SearchFilter{MediaTypes: []string{"application/pdf"}}})
			require.Len(t, res.Hits, 1, mode)
			require.Equal(t, wanted, res.Hits[0].DocumentID)
			require.False(t, res.Partial)

			res = search(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, TopK: 50, After: &ingest.SearchPlace{Rank: ingest.MaxHits - 10}})
			require.Equal(t, 10, len(res.Hits), mode)
			require.Equal(t, ingest.MaxHits, res.Next.Rank, "there is more, which nobody is shown")
			grouped := search(t, r, ingest.SearchRequest{Query: "otter", Mode: ingest.SearchText, PerDocument: 2})
			require.Len(t, grouped.Groups, 1)
			require.Len(t, grouped.Groups[0], 2)
			require.True(t, grouped.Partial, "another document stands behind more hits than are looked at")
			require.Nil(t, grouped.Next)
		})
	})
}

// walk pages through a search; between runs after each page.
func walk(t *testing.T, r *ingesttest.ReadWorld, req ingest.SearchRequest, between func()) (pages []ingest.SearchResult) {
	t.Helper()
	for {
		res := search(t, r, req)
		pages = append(pages, res)
		if res.Next == nil {
			return pages
		}
		req.After = res.Next
		between()
	}
}

// Pages fit together: every hit once, none left out, in the order in which one large page has them.
func TestPages(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		var ids []string
		const documents, each = 13, 10
		for d := range documents {
			var text []string
			for n := range each {
				text = append(text, fmt.Sprintf("otter %d.%d%s", d, n, strings.Repeat(" and more", (7*d+n)%11)))
			}
			ids = append(ids, lines(w, text...))
		}
		everyMode(t, func(mode ingest.SearchMode) {
			for _, k := range []int{7, 50} {
				seen, score, n := map[string]bool{}, 1e9, 0
				for _, p := range walk(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, TopK: k}, func() {}) {
					require.False(t, p.Partial, mode)
					for _, h := range p.Hits {
						require.False(t, seen[h.Text], "%s %s", mode, h.Text)
						require.LessOrEqual(t, h.Score, score, mode)
						seen[h.Text], score = true, h.Score
						n++
					}
				}
				require.Equal(t, documents*each, n, "%s %d", mode, k)
			}
			groups := map[string]bool{}
			best := 1e9
			for _, p := range walk(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, TopK: 4, PerDocument: 3}, func() {}) {
				require.Empty(t, p.Hits)
				require.LessOrEqual(t, len(p.Groups), 4)
				for _, g := range p.Groups {
					require.False(t, groups[g[0].DocumentID], "a group stands on one page")
					groups[g[0].DocumentID] = true
					require.LessOrEqual(t, g[0].Score, best, "in the order of their best hits")
					best = g[0].Score
					require.LessOrEqual(t, len(g), 3)
					require.NotEmpty(t, g[0].Sentence.Text)
					for i := range g[1:] {
						require.Equal(t, g[0].DocumentID, g[i+1].DocumentID)
						require.LessOrEqual(t, g[i+1].Score, g[i].Score)
					}
				}
			}
			require.Len(t, groups, documents, mode)
		})
		// Hits that vanish between the pages are no error, and take no others with them.
		everyMode(t, func(mode ingest.SearchMode) {
			require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, ids[0]))
			seen, gone := map[string]bool{}, ids[1]
			pages := walk(t, r, ingest.SearchRequest{Query: "otter", Mode: mode, TopK: 20}, func() {
				if gone != "" {
					require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, gone))
					gone = ""
				}
			})
			for _, p := range pages {
				for _, h := range p.Hits {
					require.False(t, seen[h.Text], mode)
					seen[h.Text] = true
				}
			}
			require.GreaterOrEqual(t, len(seen), len(ids[2:])*each-20, mode)
			ids = ids[2:]
		})
	})
}

// waiting is an embedder that waits until nobody asks it any more.
type waiting struct{ ingest.Embedder }

func (waiting) Embed(ctx context.Context, _ []string) ([][]float32, error) {
	<-ctx.Done()
	return nil, ingest.Transient(ingest.CodeEmbed, "POST: %w", ctx.Err())
}

// A search ends at its time limit: one for vectors with an error that says so, a hybrid one with what the words have found.
func TestASearchHasATimeLimit(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	lines(w, "an otter")
	slow := query.NewReads(query.ReadsDeps{
		Store: w.Store, Catalog: w.App.Catalog, Embedder: waiting{w.Embed}, Vectors: w.Vectors, Index: w.App.Index, Log: slog.New(slog.DiscardHandler),
	})
	slow.SetSearchTime(2 * time.Second)
	res, err := slow.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "otter", Mode: ingest.SearchHybrid})
	require.NoError(t, err)
	require.Len(t, res.Hits, 1)
	require.True(t, res.Partial)
	slow.SetSearchTime(time.Millisecond)
	for _, mode := range []ingest.SearchMode{ingest.SearchVector, ingest.SearchText} {
		if mode == ingest.SearchText {
			slow.SetSearchTime(-1)
		}
		_, err = slow.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "otter", Mode: mode})
		require.ErrorIs(t, err, context.DeadlineExceeded, mode)
		require.NotErrorAs(t, err, new(*ingest.Failure), "it is not the service's fault")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = slow.Search(gone, w.Caller, ingest.SearchRequest{Query: "otter", Mode: ingest.SearchText})
	require.ErrorIs(t, err, context.Canceled)
}
