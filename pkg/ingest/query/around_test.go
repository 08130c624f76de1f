package query_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/split"
)

// chunked makes a base whose documents are cut as these options say.
func chunked(t *testing.T, w *ingesttest.World, name string, o ingest.ChunkOptions) {
	t.Helper()
	c, err := o.Chunking("")
	require.NoError(t, err)
	b, err := w.App.CreateBase(t.Context(), w.Caller, name, ingest.BaseSettings{Chunking: &c})
	require.NoError(t, err)
	require.Equal(t, c, b.Chunking)
	b, err = w.App.Base(t.Context(), w.Caller, name)
	require.NoError(t, err)
	require.Equal(t, c, b.Chunking)
}

// A base's own chunking decides how its documents are cut and what stands around a hit; that of others stays the operator's.
func TestHitsShowWhatStandsAroundThem(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		splitter, err := split.New(split.NewDefaultConfig(), 0)
		require.NoError(t, err)
		w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Extractor, d.Splitter = pages{}, splitter }})
		r := ingesttest.NewReadWorld(t, w)
		chunked(t, w, "windows", ingest.ChunkOptions{Strategy: ingest.ChunkSentences, Window: new(1)})
		chunked(t, w, "parents", ingest.ChunkOptions{Strategy: ingest.ChunkParents, Unit: ingest.ChunkChars, Size: new(100), ParentSize: new(300)})
		var text strings.Builder
		for n := range 12 {
			fmt.Fprintf(&text, "Sentence number%d is about birds that nest near a quiet river. ", n)
		}
		text.WriteString("\f第一句说水。第二句说鹭。第三句说鱼。")
		for _, base := range []string{"windows", "parents", ""} {
			w.Process(w.Accept(ingest.Upload{File: w.Receive(base+".txt", text.String()), Base: base}).Task.ID)
		}
		find := func(base, query string) []ingest.SearchHit {
			res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: query, Base: base, Mode: ingest.SearchText, TopK: 50})
			require.NoError(t, err)
			require.NotEmpty(t, res.Hits)
			return res.Hits
		}
		hit := find("windows", "number5")[0]
		require.Equal(t, "Sentence number5 is about birds that nest near a quiet river.", hit.Text)
		require.Equal(t, [2]int{4, 6}, hit.Around)
		require.Equal(t, "Sentence number4 is about birds that nest near a quiet river. Sentence number5 is about birds that nest near a quiet river. "+
			"Sentence number6 is about birds that nest near a quiet river.", hit.Context)
		require.Equal(t, "第一句说水。第二句说鹭。第三句说鱼。", find("windows", "鹭")[0].Context, "nothing stands between sentences that nothing stood between")

		hits := find("parents", "birds")
		require.Less(t, len(hits), 12, "12 sentences, up to 4 to a parent")
		sentences := 0
		for _, h := range hits {
			require.Contains(t, h.Context, h.Text)
			require.LessOrEqual(t, utf8.RuneCountInString(h.Context), 300)
			sentences += strings.Count(h.Context, "Sentence")
		}
		require.Equal(t, 12, sentences, "of the segments of a parent only the best is a hit")
		require.Empty(t, find("", "number5")[0].Context)
		res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "birds", Base: "parents", Mode: ingest.SearchText, TopK: 2})
		require.NoError(t, err)
		require.Len(t, res.Hits, 2)
		require.NotNil(t, res.Next)
		rest, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "birds", Base: "parents", Mode: ingest.SearchText, TopK: 2, After: res.Next})
		require.NoError(t, err)
		require.NotEmpty(t, rest.Hits)
		for _, h := range rest.Hits {
			require.NotContains(t, []string{res.Hits[0].Context, res.Hits[1].Context}, h.Context)
		}
	})
}

// A change of a base counts for documents that are ingested from then on, and for those that are ingested again.
func TestAChangedChunkingCountsFromThenOn(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		splitter, err := split.New(split.NewDefaultConfig(), 0)
		require.NoError(t, err)
		w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Extractor, d.Splitter, d.MaxTokens = pages{}, splitter, 1000 }})
		r := ingesttest.NewReadWorld(t, w)
		first := w.Upload("One is here. Two is there. Three is gone.")
		w.Process(first.Task.ID)
		segments := func() int {
			all, err := r.Reads.Segments(t.Context(), w.Caller, first.Document.ID, -1, 100)
			require.NoError(t, err)
			return len(all)
		}
		require.Equal(t, 1, segments())
		c, err := ingest.ChunkOptions{Strategy: ingest.ChunkSentences}.Chunking("")
		require.NoError(t, err)
		_, err = w.App.ChangeBase(t.Context(), w.Caller, "", ingest.BaseSettings{Chunking: &c})
		require.NoError(t, err)
		require.Equal(t, 1, segments())
		again := ingest.Upload{File: w.Receive("a.txt", "One is here. Two is there. Three is gone."), DocumentID: first.Document.ID, Force: true}
		w.Process(w.Accept(again).Task.ID)
		require.Equal(t, 3, segments())

		b, err := w.App.ChangeBase(t.Context(), w.Caller, "", ingest.BaseSettings{SearchMode: ingest.SearchText})
		require.NoError(t, err)
		require.Equal(t, c, b.Chunking, "what is not named stays")
		b, err = w.App.ChangeBase(t.Context(), w.Caller, "", ingest.BaseSettings{Chunking: &ingest.Chunking{}})
		require.NoError(t, err)
		require.Equal(t, ingest.Chunking{}, b.Chunking)
		require.Equal(t, ingest.SearchText, b.SearchMode)
		c, err = ingest.ChunkOptions{Size: new(1001)}.Chunking("")
		require.NoError(t, err)
		_, err = w.App.ChangeBase(t.Context(), w.Caller, "", ingest.BaseSettings{Chunking: &c})
		require.ErrorContains(t, err, "chunking.size is 1001 tokens, and the embedding model takes texts of at most 1000")
	})
}
