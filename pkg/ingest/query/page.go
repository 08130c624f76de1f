package query

import (
	"context"

	"github.com/millweir/millweir/pkg/ingest"
)

// groupedDepth is how many hits are grouped at first.
const groupedDepth = 200

// page is a search's page: hits, or groups of hits, behind a place.
type page struct {
	items [][]ingest.SearchHit // a hit, or a document's best
	next  *ingest.SearchPlace
	// cut tells that there may be more, which no page shows.
	cut bool
}

// page finds a page of k hits, or of k groups of at most per hits.
func (s *searching) page(ctx context.Context, mode ingest.SearchMode, after *ingest.SearchPlace, k, per int) (page, found, error) {
	if after == nil {
		after = &ingest.SearchPlace{}
	}
	depth := after.Rank + k
	if per > 0 {
		depth = max(depth, groupedDepth)
	}
	for {
		depth = min(depth, ingest.MaxHits)
		f, err := s.find(ctx, mode, depth)
		if err != nil {
			return page{}, f, err
		}
		items := each(f.Hits, per)
		p := cut(items, per > 0, f.more, *after, k)
		if per == 0 && len(items) == len(f.Hits) || !f.more || len(p.items) == k {
			return p, f, nil
		}
		if depth == ingest.MaxHits {
			p.next, p.cut = nil, true
			return p, f, nil
		}
		depth *= 2
	}
}

// each makes items of hits: each alone, or the best of each document, in the order of their best. Of hits that show the same text
// around them only the best counts.
func each(hits []ingest.SearchHit, per int) (items [][]ingest.SearchHit) {
	at := map[string]int{}
	type parent struct {
		document string
		around   [2]int
	}
	seen := map[parent]bool{}
	for _, h := range hits {
		if p := (parent{h.DocumentID, h.Around}); h.Around != ([2]int{}) {
			if seen[p] {
				continue
			}
			seen[p] = true
		}
		i, known := at[h.DocumentID]
		switch {
		case per == 0 || !known:
			at[h.DocumentID] = len(items)
			items = append(items, []ingest.SearchHit{h})
		case len(items[i]) < per:
			items[i] = append(items[i], h)
		}
	}
	return items
}

// cut takes the k items behind a place: behind the same hit when it is still there, else behind as many as before.
func cut(items [][]ingest.SearchHit, grouped, more bool, after ingest.SearchPlace, k int) (p page) {
	place := func(i int) ingest.SearchPlace {
		at := ingest.SearchPlace{Rank: i + 1, Document: items[i][0].DocumentID, Segment: items[i][0].SegmentIndex}
		if grouped {
			at.Segment = -1
		}
		return at
	}
	from := min(after.Rank, len(items))
	for i := range items {
		if at := place(i); at.Document == after.Document && at.Segment == after.Segment {
			from = i + 1
		}
	}
	to := min(from+k, len(items))
	if p.items = items[from:to]; to > from && (more || to < len(items)) {
		last := place(to - 1)
		p.next = &last
	}
	return p
}
