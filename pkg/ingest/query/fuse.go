package query

import (
	"cmp"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
)

// textWeight is how much a hit's words count in a hybrid search unless it is set, its vector counting the rest. It is measured: on the questions of
// `make bench BENCH=search-quality` with four embedding models, 0.8 finds what the words alone find and more of what is asked for
// in other words than either part alone. Sums of reciprocal ranks, the usual way, put hits of neither kind first.
const textWeight = 0.8

// fuse ranks the hits of both parts by weight · t + (1 − weight) · v. t is the share of the query that a hit's words are;
// v is its nearness, 1 of the nearest and 0 of the fiftieth hit and those behind it (a convex combination of normalised scores;
// Bruch, Gai, Ingber 2023, "An analysis of fusion functions for hybrid retrieval"). It fuses fusedDepth of each at a time: what
// comes later does not change the order of what came before, so that pages fit together. No score is above one before it.
func fuse(text, vectors []ingest.SearchHit, weight float64) (out []ingest.SearchHit) {
	near := func(ingest.SearchHit) float64 { return 1 }
	if n := min(fusedDepth, len(vectors)); n > 0 {
		nearest, farthest := *vectors[0].VectorScore, *vectors[n-1].VectorScore
		if nearest > farthest {
			near = func(h ingest.SearchHit) float64 { return max(0, (*h.VectorScore-farthest)/(nearest-farthest)) }
		}
	}
	given := map[place]bool{}
	for from := 0; from < max(len(text), len(vectors)); from += fusedDepth {
		some := func(list []ingest.SearchHit) []ingest.SearchHit {
			return list[min(from, len(list)):min(from+fusedDepth, len(list))]
		}
		for _, h := range fuseSome(some(text), some(vectors), near, weight) {
			if given[placeOf(h)] {
				continue
			}
			given[placeOf(h)] = true
			if n := len(out); n > 0 {
				h.Score = min(h.Score, out[n-1].Score)
			}
			out = append(out, h)
		}
	}
	return out
}

// place names a segment that was found.
type place struct {
	document string
	index    int
}

func placeOf(h ingest.SearchHit) place { return place{h.DocumentID, h.SegmentIndex} }

// fuseSome is fuse of some hits of each part.
func fuseSome(text, vectors []ingest.SearchHit, near func(ingest.SearchHit) float64, weight float64) []ingest.SearchHit {
	at := map[place]int{}
	out := make([]ingest.SearchHit, 0, len(text)+len(vectors))
	for _, h := range text {
		at[placeOf(h)] = len(out)
		h.Score = weight * h.TextShare
		out = append(out, h)
	}
	for _, h := range vectors {
		i, known := at[placeOf(h)]
		if !known {
			i = len(out)
			h.Score = 0
			out = append(out, h)
		}
		out[i].Score += (1 - weight) * near(h)
		out[i].VectorScore = h.VectorScore
	}
	slices.SortStableFunc(out, func(a, b ingest.SearchHit) int { return cmp.Compare(b.Score, a.Score) })
	return out
}
