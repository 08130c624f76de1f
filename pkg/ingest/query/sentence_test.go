package query_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/split"
)

// pages reads a text whose pages end with form feeds.
type pages struct{ ingest.Extractor }

func (pages) Fingerprint() string { return "pages/1" }

func (pages) Extract(_ context.Context, src ingest.Source, _ func(int, int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	all, err := io.ReadAll(io.NewSectionReader(src.File, 0, 1<<40))
	if err != nil {
		return ingest.Extraction{}, err
	}
	texts := strings.Split(string(all), "\f")
	for i, text := range texts {
		if err := emit(ingest.Block{Kind: ingest.BlockParagraph, Page: i + 1, Text: text}); err != nil {
			return ingest.Extraction{}, err
		}
	}
	return ingest.Extraction{Pages: len(texts)}, nil
}

// A hit says from which page to which it goes, and shows the sentence that has most of the query, with its page.
func TestAHitShowsItsBestSentence(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		splitter, err := split.New(split.Config{Mode: ingest.ChunkChars, Size: 400}, 0)
		require.NoError(t, err)
		w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Extractor, d.Splitter = pages{}, splitter }})
		r := ingesttest.NewReadWorld(t, w)
		const third = "Über das Wehr führt 水車 𝒎 otter heron."
		w.Process(w.Upload("The heron waits. The heron stays.\fThe heron waits and the heron eats. " + third + "\fThe heron sleeps.").Task.ID)
		w.Process(w.Upload("The heron waits.").Task.ID)
		for _, mode := range []ingest.SearchMode{ingest.SearchText, ingest.SearchVector, ingest.SearchHybrid} {
			res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "heron otter", Mode: mode})
			require.NoError(t, err)
			require.Len(t, res.Hits, 2)
			i := 0
			if res.Hits[i].PageTo == 1 {
				i = 1
			}
			h := res.Hits[i]
			require.Equal(t, []int{1, 3}, []int{h.Page, h.PageTo}, mode)
			require.Equal(t, third, h.Sentence.Text, "otter is rarer")
			require.Equal(t, 2, h.Sentence.Page)
			require.Equal(t, third, string([]rune(h.Text)[h.Sentence.Start:][:len([]rune(third))]))
			require.Equal(t, []string{"otter", "heron"}, marked(third, h.Sentence.Highlights))
			require.Len(t, marked(h.Text, h.Highlights), 7)
			require.Subset(t, []string{"otter", "heron"}, marked(h.Text, h.Highlights))
			require.Equal(t, ingest.Sentence{Text: "The heron waits.", Page: 1, Highlights: [][2]int{{4, 9}}}, res.Hits[1-i].Sentence)
		}
		res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "unknown", Mode: ingest.SearchVector})
		require.NoError(t, err)
		for _, h := range res.Hits {
			require.Equal(t, "The heron waits.", h.Sentence.Text, "the first when none has a word")
			require.Empty(t, h.Highlights)
		}

		w.Exec("UPDATE knowledge_segment SET page_breaks = NULL")
		res, err = r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "otter", Mode: ingest.SearchText})
		require.NoError(t, err)
		require.Equal(t, third, res.Hits[0].Sentence.Text)
		require.Equal(t, []int{1, 0, 0}, []int{res.Hits[0].Page, res.Hits[0].PageTo, res.Hits[0].Sentence.Page}, "rows from before migration 010")
	})
}

// A table has no sentences: its rows stand for them.
func TestALongTableIsCutIntoRows(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) {
		splitter, err := split.New(split.Config{Mode: ingest.ChunkChars, Size: 2000}, 0)
		require.NoError(t, err)
		d.Extractor, d.Splitter = pages{}, splitter
	}})
	r := ingesttest.NewReadWorld(t, w)
	w.Process(w.Upload(strings.Repeat("a row without end | 1\n", 40) + "the zeppelin | 7\n" + strings.Repeat("a row without end | 1\n", 5)).Task.ID)
	res, err := r.Reads.Search(t.Context(), w.Caller, ingest.SearchRequest{Query: "zeppelin", Mode: ingest.SearchText})
	require.NoError(t, err)
	require.Equal(t, "the zeppelin | 7", res.Hits[0].Sentence.Text)
}

// marked are the pieces of a text that ranges of characters name.
func marked(text string, ranges [][2]int) (out []string) {
	for _, r := range ranges {
		out = append(out, string([]rune(text)[r[0]:r[1]]))
	}
	return out
}
