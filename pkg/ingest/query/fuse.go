package query

import (
	"cmp"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
)

// textWeight is how much a hit's words count in a hybrid search, its vector counting the rest. It is measured: on the questions of
// `make bench BENCH=search-quality` with four embedding models, 0.8 finds what the words alone find and more of what is asked for
// in other words than either part alone. Sums of reciprocal ranks, the usual way, put hits of neither kind first.
const textWeight = 0.8

// fuse ranks the hits of both parts by textWeight · t + (1 − textWeight) · v. t is the share of the query that a hit's words are;
// v is its nearness, 1 of the nearest and 0 of the farthest hit (a convex combination of normalised scores; Bruch, Gai, Ingber 2023,
// "An analysis of fusion functions for hybrid retrieval").
func fuse(text, vectors []ingest.SearchHit) []ingest.SearchHit {
	type place struct {
		document string
		index    int
	}
	at := map[place]int{}
	out := make([]ingest.SearchHit, 0, len(text)+len(vectors))
	for _, h := range text {
		at[place{h.DocumentID, h.SegmentIndex}] = len(out)
		h.Score = textWeight * h.TextShare
		out = append(out, h)
	}
	for _, h := range vectors {
		key := place{h.DocumentID, h.SegmentIndex}
		i, known := at[key]
		if !known {
			i = len(out)
			at[key] = i
			h.Score = 0
			out = append(out, h)
		}
		nearest, farthest := *vectors[0].VectorScore, *vectors[len(vectors)-1].VectorScore
		near := 1.0
		if nearest > farthest {
			near = (*h.VectorScore - farthest) / (nearest - farthest)
		}
		out[i].Score += (1 - textWeight) * near
		out[i].VectorScore = h.VectorScore
	}
	slices.SortStableFunc(out, func(a, b ingest.SearchHit) int { return cmp.Compare(b.Score, a.Score) })
	return out
}
