package query

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
)

const (
	// searchOver is how many times k is fetched at first: versions that are not visible yet or any more take places.
	searchOver = 4
	// searchCap bounds one fetch; beyond it one filtered query is tried (design D12).
	searchCap = 2000
	// searchBirths bounds that filter: Chroma returns 500 for an "$in" of 40,000 values (measured).
	searchBirths = 1000
	// searchAgain is how often a search starts over because a version was switched under it.
	searchAgain = 3
	// searchDefaultK and MaxTopK are contract §4's.
	searchDefaultK = 10
	// MaxTopK is the most hits of one search.
	MaxTopK = 50
	// fusedDepth is how many hits of each part a hybrid search fuses.
	fusedDepth = 50
)

// Search finds segments of visible versions: by their words, by the nearest vectors, or by both (design D12, D24).
func (r *Reads) Search(ctx context.Context, c ingest.Caller, req ingest.SearchRequest) (ingest.SearchResult, error) {
	base, err := r.cat.Base(ctx, c, req.Base)
	if err != nil {
		return ingest.SearchResult{}, err
	}
	k := req.TopK
	if k <= 0 {
		k = searchDefaultK
	}
	k = min(k, MaxTopK)
	var res ingest.SearchResult
	var mark *textindex.Highlighter // nil: words were not looked for
	switch mode := r.mode(req.Mode, base); mode {
	case ingest.SearchText:
		res, mark, err = r.searchText(ctx, base, req.Query, k)
	case ingest.SearchVector:
		res, err = r.searchVectors(ctx, base, req.Query, k)
	default:
		res, mark, err = r.searchBoth(ctx, base, req.Query, k)
	}
	if mark == nil {
		mark = textindex.Results{}.Highlighter(req.Query)
	}
	for i := range res.Hits {
		explain(&res.Hits[i], mark)
	}
	return res, err
}

// mode is what a search looks into.
func (r *Reads) mode(wanted ingest.SearchMode, base ingest.Base) ingest.SearchMode {
	if wanted != ingest.SearchAuto && wanted != "" {
		return wanted
	}
	if model := r.embedder.Model(); model.Lexical || base.Model.Key != "" && base.Model.Key != model.Key {
		return ingest.SearchText
	}
	return ingest.SearchHybrid
}

// searchBoth fuses the ranks of both parts. Without the vectors it returns what the words find, and says that it is partial.
func (r *Reads) searchBoth(ctx context.Context, base ingest.Base, query string, k int) (ingest.SearchResult, *textindex.Highlighter, error) {
	depth := max(k, fusedDepth)
	text, mark, err := r.searchText(ctx, base, query, depth)
	if err != nil {
		return text, nil, err
	}
	vectors, err := r.searchVectors(ctx, base, query, depth)
	if f := (*ingest.Failure)(nil); errors.As(err, &f) && ctx.Err() == nil && f.Code != ingest.CodeDimension {
		r.trouble.Log(ctx, slog.LevelWarn, base.ID, "ingest: a search without vectors", slog.String("knowledge_base_id", base.ID), slog.Any("error", err))
		vectors, err = ingest.SearchResult{Partial: true}, nil
	}
	if err != nil {
		return vectors, nil, err
	}
	hits := fuse(text.Hits, vectors.Hits)
	return ingest.SearchResult{
		Hits: hits[:min(k, len(hits))], Partial: text.Partial || vectors.Partial, Mode: ingest.SearchHybrid, Suggestion: text.Suggestion,
	}, mark, nil
}

// searchVectors finds the segments nearest to the query. Vectors first, rows second: every round joins all ids fetched so far anew.
func (r *Reads) searchVectors(ctx context.Context, base ingest.Base, query string, k int) (ingest.SearchResult, error) {
	if model := r.embedder.Model(); base.Model.Key != "" && base.Model.Key != model.Key {
		return ingest.SearchResult{}, ingest.Permanent(ingest.CodeDimension, "Search with the model that the knowledge base was embedded with, or ingest it again.",
			"knowledge base %s holds vectors of %s, this service embeds with %s", base.Name, base.Model.Key, model.Key)
	}
	vectors, err := r.embedder.Embed(ctx, []string{query})
	if err != nil {
		return ingest.SearchResult{}, fmt.Errorf("embed query: %w", err)
	}
	s := search{r: r, base: base.ID, vector: vectors[0], k: k}
	res, err := s.run(ctx)
	res.Mode = ingest.SearchVector
	for i := range res.Hits {
		res.Hits[i].VectorScore = new(res.Hits[i].Score)
	}
	return res, err
}

// search is one search in work.
type search struct {
	r      *Reads
	base   string
	vector []float32
	k      int
	// missing is how many visible segments of at most k the last round did not find though it saw the whole collection.
	missing int
	since   time.Time // the database's clock before the last fetch: a version closed later was switched under it
}

// run tries again while versions are switched under it.
func (s *search) run(ctx context.Context) (ingest.SearchResult, error) {
	for try := 0; ; try++ {
		s.missing = 0
		res, switched, err := s.once(ctx)
		if err != nil || !switched {
			s.r.trouble.Reset(s.base)
			return res, err
		}
		if try == searchAgain {
			if s.missing > 0 {
				s.r.trouble.Log(ctx, slog.LevelError, s.base, "ingest: the vector store has lost vectors of visible segments, run millweir fsck --repair",
					slog.String("knowledge_base_id", s.base), slog.Int("found", len(res.Hits)), slog.Int("missing", s.missing))
			}
			res.Partial = true
			return res, nil
		}
	}
}

// once fetches more and more until k hits are visible or the collection ends.
func (s *search) once(ctx context.Context) (ingest.SearchResult, bool, error) {
	for n := s.k * searchOver; ; n = min(n*2, searchCap) {
		hits, err := s.fetch(ctx, n, nil)
		if err != nil {
			return ingest.SearchResult{}, false, err
		}
		res, switched, err := s.join(ctx, hits)
		if err != nil || switched || len(res.Hits) >= s.k {
			return res, switched, err
		}
		if len(hits) < n {
			return s.ended(ctx, res)
		}
		if n == searchCap {
			return s.filtered(ctx)
		}
	}
}

// ended is a search that has seen the whole collection. When SQL knows more visible segments than it found, a version became
// visible meanwhile and the search starts over, or the store has lost vectors and the answer is partial.
func (s *search) ended(ctx context.Context, res ingest.SearchResult) (ingest.SearchResult, bool, error) {
	visible, err := sqldb.ReadAll(ctx, s.r.store, "count visible segments", s.r.q.Get("SearchVisible"), []any{s.base, s.k}, func(rows *sql.Rows) (string, error) {
		var id string
		return id, rows.Scan(&id)
	})
	if err != nil || len(visible) <= len(res.Hits) {
		return res, false, err
	}
	s.missing = len(visible) - len(res.Hits)
	return res, true, nil
}

// fetch reads the database's clock and then the n nearest vectors.
// A version's vectors are all written before the statement that closes its predecessor,
// so a predecessor closed before this clock cannot hide its successor from this fetch.
func (s *search) fetch(ctx context.Context, n int, births []string) ([]ingest.Hit, error) {
	m, err := s.r.store.Moment(ctx)
	if err != nil {
		return nil, err
	}
	s.since = m.Now
	hits, err := s.r.vectors.Query(ctx, s.base, s.vector, n, births)
	if err != nil {
		return nil, fmt.Errorf("query vectors: %w", err)
	}
	return hits, nil
}

// filtered asks once more for vectors of visible births only; still short means partial.
func (s *search) filtered(ctx context.Context) (ingest.SearchResult, bool, error) {
	births, err := sqldb.ReadAll(ctx, s.r.store, "visible births", s.r.q.Get("SearchBirths"), []any{s.base, searchBirths + 1}, func(rows *sql.Rows) (string, error) {
		var id string
		return id, rows.Scan(&id)
	})
	if err != nil || len(births) == 0 {
		return ingest.SearchResult{Partial: true}, false, err
	}
	births = births[:min(len(births), searchBirths)]
	hits, err := s.fetch(ctx, s.k*searchOver, births)
	if err != nil {
		return ingest.SearchResult{}, false, err
	}
	res, switched, err := s.join(ctx, hits)
	res.Partial = len(res.Hits) < s.k
	return res, switched, err
}

// join keeps the hits whose segment is visible now, best first, at most k.
// switched tells that a version was closed since the fetch began: its successor's vectors may be missing from hits.
func (s *search) join(ctx context.Context, hits []ingest.Hit) (res ingest.SearchResult, switched bool, err error) {
	if len(hits) == 0 {
		return ingest.SearchResult{Hits: []ingest.SearchHit{}}, false, nil
	}
	args := []any{s.base, s.since}
	for _, h := range hits {
		args = append(args, h.ID)
	}
	type row struct {
		id      string
		visible bool
		hit     ingest.SearchHit
	}
	rows, err := sqldb.ReadAll(ctx, s.r.store, "join hits", s.r.q.List("SearchJoin", len(hits)), args, func(rows *sql.Rows) (row, error) {
		var x row
		var visible int
		var path string
		var breaks sql.NullString
		err := rows.Scan(&x.id, &visible, &x.hit.DocumentID, &x.hit.Title, &x.hit.FileName, &x.hit.Version,
			&x.hit.SegmentIndex, &x.hit.Page, &breaks, &path, &x.hit.Text)
		x.visible, x.hit.HeadingPath, x.hit.PageBreaks = visible == 1, headings(path), pageBreaks(breaks)
		return x, err
	})
	if err != nil {
		return ingest.SearchResult{}, false, err
	}
	byID := make(map[string]ingest.SearchHit, len(rows))
	for _, x := range rows {
		if x.visible {
			byID[x.id] = x.hit
		} else {
			switched = true
		}
	}
	res.Hits = make([]ingest.SearchHit, 0, s.k)
	for _, h := range hits {
		hit, ok := byID[h.ID]
		if !ok || len(res.Hits) == s.k {
			continue
		}
		hit.Score = h.Score
		res.Hits = append(res.Hits, hit)
		delete(byID, h.ID)
	}
	return res, switched, nil
}
