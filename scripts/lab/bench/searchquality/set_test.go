package searchquality

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// Each answer stands in one paragraph of all, and each exact word too.
func TestEachQuestionHasOneAnswer(t *testing.T) {
	t.Parallel()
	set, err := New()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(set.Questions), 300)
	for _, q := range set.Questions {
		times := 0
		for _, d := range set.Documents {
			for _, p := range d.Paragraphs {
				if strings.Contains(p, q.Answer) {
					times++
				}
			}
		}
		require.Equal(t, 1, times, "%s %s %q", q.Language, q.Kind, q.Query)
	}
}

// The text index answers what it is asked for: the figures of the issue that asked for it, over paragraphs as segments.
func TestTheTextIndexFinds(t *testing.T) {
	t.Parallel()
	set, err := New()
	require.NoError(t, err)
	var segments []textindex.Text
	for n, d := range set.Documents {
		for i, p := range d.Paragraphs {
			segments = append(segments, textindex.Text{
				Version: fmt.Sprintf("00000000-0000-7000-8000-%012d", n), Index: i, TextHash: fmt.Sprintf("%064x", blocks*n+i), Title: d.Title, Text: p,
			})
		}
	}
	var parts []*part.Part
	for some := range slices.Chunk(segments, 700) { // several parts, as a base has them
		bytes := textindex.Build("base", some).Bytes()
		p, err := part.Open(t.Context(), bytes, int64(len(bytes)))
		require.NoError(t, err)
		parts = append(parts, p)
	}
	ranks, err := set.Ask(func(query string) (found []string, err error) {
		got, err := textindex.SearchParts(t.Context(), parts, query, depth, nil)
		for _, f := range got.Found {
			var n int
			_, _ = fmt.Sscanf(f.Version[len(f.Version)-12:], "%d", &n)
			found = append(found, set.Documents[n].Paragraphs[f.Index])
		}
		return found, err
	})
	require.NoError(t, err)
	for _, l := range append(set.languages(), "") {
		of := func(kinds ...Kind) Measures {
			return set.Measure(ranks, func(q Question) bool { return (l == "" || q.Language == l) && slices.Contains(kinds, q.Kind) })
		}
		all, misspelt := of(lexical...), of(Misspelt)
		t.Logf("%q: lexical MRR %.3f of %s; misspelt %s", l, all.ReciprocalRank, all.note(), misspelt.note())
		recall, rank := 0.95, 0.90
		if l == "" {
			recall, rank = 0.98, 0.95
		}
		require.GreaterOrEqual(t, all.Recall5, recall, "recall@5 of %q", l)
		require.GreaterOrEqual(t, all.ReciprocalRank, rank, "MRR of %q", l)
		require.GreaterOrEqual(t, misspelt.Recall5, 0.85, "misspelt, recall@5 of %q", l)
	}
}
