package ingesttest

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/query"
	"github.com/millweir/millweir/pkg/ingest/watch"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// scanVectors returns queries over memoryVectors by an exact scan; before runs between a fetch and its answer.
type scanVectors struct {
	*Vectors
	Queries int
	After   func()
}

// Query implements VectorStore.
func (s *scanVectors) Query(_ context.Context, base string, vector []float32, k int, births []string) ([]ingest.Hit, error) {
	s.Queries++
	var hits []ingest.Hit
	if err := s.do("query", func() {
		for id, row := range s.Rows[base] {
			if len(births) > 0 && !slices.Contains(births, row.Birth) {
				continue
			}
			hits = append(hits, ingest.Hit{ID: id, Score: cosine(vector, row.Values)})
		}
	}); err != nil {
		return nil, err
	}
	slices.SortFunc(hits, func(a, b ingest.Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID)) })
	if s.After != nil {
		s.After()
	}
	return hits[:min(k, len(hits))], nil
}

// cosine is the similarity that stores score by.
func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i, x := range a {
		y := b[i]
		dot, aa, bb = dot+float64(x*y), aa+float64(x*x), bb+float64(y*y)
	}
	return dot / math.Sqrt(aa*bb)
}

// ReadWorld is a world with the read side on it.
type ReadWorld struct {
	*World
	Reads   *query.Reads
	Watches *watch.Watches
	Explain *tasks.Explainer
	Scan    *scanVectors
}

func NewReadWorld(t *testing.T, w *World) *ReadWorld {
	t.Helper()
	r := &ReadWorld{World: w, Scan: &scanVectors{Vectors: w.Vectors}}
	r.Reads = query.NewReads(query.ReadsDeps{Store: w.Store, Catalog: w.App.Catalog, Embedder: w.Embed, Earlier: w.Earlier, Vectors: r.Scan, Index: w.App.Index, Open: w.App.Folder.Open, Log: slog.New(slog.DiscardHandler)})
	r.Watches, r.Explain = watch.NewWatches(w.Store, slog.New(slog.DiscardHandler)), tasks.NewExplainer(w.Store, nil, nil, ingest.Descriptions())
	return r
}

// Search returns the texts that the vectors find.
func (r *ReadWorld) Search(query string, k int) (texts []string, partial bool) {
	r.T.Helper()
	res, err := r.Reads.Search(r.T.Context(), r.Caller, ingest.SearchRequest{Query: query, TopK: k, Mode: ingest.SearchVector})
	require.NoError(r.T, err)
	for _, h := range res.Hits {
		texts = append(texts, h.Text)
	}
	return texts, res.Partial
}

// Foreign is a caller who owns nothing.
func Foreign() ingest.Caller {
	return ingest.Caller{Scope: taskstate.Scope{UserID: "mallory", Role: taskstate.RoleUser}}
}

// Pages lists all documents one by one.
func (r *ReadWorld) Pages(sort taskstate.Sort) (ids []string) {
	r.T.Helper()
	q := ingest.ListQuery{Sort: sort, Limit: 1}
	for {
		page, err := r.Reads.Documents(r.T.Context(), r.Caller, q)
		require.NoError(r.T, err)
		if len(page) == 0 {
			return ids
		}
		ids = append(ids, page[0].ID)
		at := page[0].UpdatedAt
		if sort == taskstate.SortCreated || sort == taskstate.SortCreatedDesc {
			at = page[0].CreatedAt
		}
		q.After = &taskstate.Cursor{At: at, ID: page[0].ID}
	}
}
