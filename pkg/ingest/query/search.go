package query

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	// searchTime bounds a search; the vectors of a hybrid one have half of it.
	searchTime = 10 * time.Second
	// fusedDepth is how many hits of each part a hybrid search fuses at a time.
	fusedDepth = 50
)

// Search finds segments of visible versions: by their words, by the nearest vectors, or by both (design D12, D24). *ingest.TextError for a
// filter that the base's metadata schema rules out.
func (r *Reads) Search(ctx context.Context, c ingest.Caller, req ingest.SearchRequest) (ingest.SearchResult, error) {
	limited, cancel := context.WithTimeout(ctx, r.searchTime)
	defer cancel()
	res, err := r.search(limited, c, req)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return res, fmt.Errorf("%w: a search took longer than %v (%v)", context.DeadlineExceeded, r.searchTime, err) //nolint:errorlint // the cause tells what was cut off, not why
	}
	return res, err
}

func (r *Reads) search(ctx context.Context, c ingest.Caller, req ingest.SearchRequest) (ingest.SearchResult, error) {
	base, err := r.cat.Base(ctx, c, req.Base)
	if err != nil {
		return ingest.SearchResult{}, err
	}
	if err := base.MetadataSchema.FitsRules("metadata", req.Filter.Metadata); err != nil {
		return ingest.SearchResult{}, err
	}
	k := req.TopK
	if k <= 0 {
		k = searchDefaultK
	}
	s := &searching{r: r, base: base, query: req.Query}
	s.few, s.filter = r.filterOf(base.ID, req.Filter)
	p, f, err := s.page(ctx, r.mode(req.Mode, base), req.After, min(k, MaxTopK), req.PerDocument)
	if err != nil {
		return ingest.SearchResult{}, err
	}
	if err := r.around(ctx, p.items); err != nil {
		return ingest.SearchResult{}, err
	}
	res := f.SearchResult
	res.Hits, res.Next, res.Partial = []ingest.SearchHit{}, p.next, res.Partial || p.cut
	for _, item := range p.items {
		for i := range item {
			explain(&item[i], f.mark)
		}
		if req.PerDocument == 0 {
			res.Hits = append(res.Hits, item...)
		}
	}
	if req.PerDocument > 0 {
		res.Groups = p.items
	}
	return res, nil
}

// searching is a search in work.
type searching struct {
	r      *Reads
	base   ingest.Base
	query  string
	filter sqldb.Part // of rows; empty: none
	few    sqldb.Part // the same, to look for what it selects
	vector []float32  // of the query; nil: not made yet

	reranked *bool // as SearchResult's; nil: not tried yet
	scores   map[place]float64
}

// found are the best hits of a search.
type found struct {
	ingest.SearchResult
	more bool // than these
	mark *textindex.Highlighter
}

// find finds the best hits, at most so many, the first of them in the order of the reranking service.
func (s *searching) find(ctx context.Context, mode ingest.SearchMode, depth int) (found, error) {
	f, err := s.findIn(ctx, mode, s.r.depth(depth))
	if err == nil {
		err = s.rerank(ctx, &f)
	}
	f.more = f.more || len(f.Hits) > depth
	f.Hits = f.Hits[:min(len(f.Hits), depth)]
	return f, err
}

// findIn finds the best hits of a mode, at most so many.
func (s *searching) findIn(ctx context.Context, mode ingest.SearchMode, depth int) (found, error) {
	switch mode {
	case ingest.SearchText:
		return s.text(ctx, depth)
	case ingest.SearchVector:
		f, err := s.vectors(ctx, depth)
		f.mark = textindex.Results{}.Highlighter(s.query)
		return f, err
	default:
		return s.both(ctx, depth)
	}
}

// first keeps the hits up to a depth.
func first(res ingest.SearchResult, mark *textindex.Highlighter, depth int) found {
	more := len(res.Hits) > depth
	res.Hits = res.Hits[:min(len(res.Hits), depth)]
	return found{res, more, mark}
}

// mode is what a search looks into: the base says it unless the search does.
func (r *Reads) mode(wanted ingest.SearchMode, base ingest.Base) ingest.SearchMode {
	if wanted = cmp.Or(wanted, base.SearchMode); wanted != ingest.SearchAuto {
		return wanted
	}
	if e := ingest.EmbedderOf(base.Model, r.embedder, r.earlier); e == nil || e.Model().Lexical {
		return ingest.SearchText
	}
	return ingest.SearchHybrid
}

// both fuses the ranks of both parts. Without the vectors it returns what the words find, and says that it is partial.
func (s *searching) both(ctx context.Context, depth int) (found, error) {
	each := (depth + fusedDepth - 1) / fusedDepth * fusedDepth
	text, err := s.text(ctx, each)
	if err != nil {
		return text, err
	}
	limited, cancel := context.WithTimeout(ctx, s.r.searchTime/2) // so that the words are returned in time
	defer cancel()
	vectors, err := s.vectors(limited, each)
	f := (*ingest.Failure)(nil)
	away := errors.As(err, &f) && f.Code != ingest.CodeDimension || err != nil && limited.Err() != nil
	if away && ctx.Err() == nil {
		s.r.trouble.Log(ctx, slog.LevelWarn, s.base.ID, "ingest: a search without vectors", slog.String("knowledge_base_id", s.base.ID), slog.Any("error", err))
		vectors, err = found{SearchResult: ingest.SearchResult{Partial: true}}, nil
	}
	if err != nil {
		return vectors, err
	}
	all := first(ingest.SearchResult{
		Hits: fuse(text.Hits, vectors.Hits, s.r.textWeight), Partial: text.Partial || vectors.Partial, Mode: ingest.SearchHybrid, Suggestion: text.Suggestion,
	}, text.mark, depth)
	all.more = all.more || text.more || vectors.more
	return all, nil
}

// vectors finds the segments nearest to the query. Vectors first, rows second: every round joins all ids fetched so far anew.
func (s *searching) vectors(ctx context.Context, depth int) (found, error) {
	embedder := ingest.EmbedderOf(s.base.Model, s.r.embedder, s.r.earlier)
	if embedder == nil {
		return found{}, ingest.Permanent(ingest.CodeDimension, "An operator sets EMBEDDING_PREVIOUS_* as EMBEDDING_* were when this knowledge base was made, or reindexes it.",
			"knowledge base %s holds vectors of %s, this service embeds with %s", s.base.Name, s.base.Model.Key, s.r.embedder.Model().Key)
	}
	if s.vector == nil {
		made, err := embedder.Embed(ctx, []string{s.query})
		if err != nil {
			return found{}, fmt.Errorf("embed query: %w", err)
		}
		s.vector = made[0]
	}
	n := nearest{searching: s, k: depth + 1}
	res, err := n.run(ctx)
	res.Mode = ingest.SearchVector
	for i := range res.Hits {
		res.Hits[i].VectorScore = new(res.Hits[i].Score)
	}
	return first(res, nil, depth), err
}

// nearest looks for the k vectors nearest to the query.
type nearest struct {
	*searching
	k int
	// missing is how many visible segments of at most k the last round did not find though it saw the whole collection.
	missing int
	since   time.Time // the database's clock before the last fetch: a version closed later was switched under it
}

// run tries again while versions are switched under it.
func (s *nearest) run(ctx context.Context) (ingest.SearchResult, error) {
	for try := 0; ; try++ {
		s.missing = 0
		res, switched, err := s.once(ctx)
		if err != nil || !switched {
			s.r.trouble.Reset(s.base.ID)
			return res, err
		}
		if try == searchAgain {
			if s.missing > 0 {
				s.r.trouble.Log(ctx, slog.LevelError, s.base.ID, "ingest: the vector store has lost vectors of visible segments, run millweir fsck --repair",
					slog.String("knowledge_base_id", s.base.ID), slog.Int("found", len(res.Hits)), slog.Int("missing", s.missing))
			}
			res.Partial = true
			return res, nil
		}
	}
}

// once fetches more and more until k hits are visible or the collection ends.
func (s *nearest) once(ctx context.Context) (ingest.SearchResult, bool, error) {
	births, err := s.births(ctx)
	if err != nil || births != nil && len(births) == 0 {
		return ingest.SearchResult{}, false, err
	}
	for n := min(s.k*searchOver, searchCap); ; n = min(n*2, searchCap) {
		hits, err := s.fetch(ctx, n, births)
		if err != nil {
			return ingest.SearchResult{}, false, err
		}
		res, switched, err := s.join(ctx, hits)
		if err != nil || switched || len(res.Hits) >= s.k {
			return res, switched, err
		}
		switch {
		case len(hits) < n:
			return s.ended(ctx, res)
		case n == searchCap && births == nil:
			return s.filtered(ctx)
		case n == searchCap:
			res.Partial = true
			return res, false, nil
		}
	}
}

// births are the versions that the vectors of the documents that the filter selects were born in; nil: there is no filter, or they
// are too many for the store.
func (s *nearest) births(ctx context.Context) ([]string, error) {
	if s.filter.Text == "" {
		return nil, nil
	}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	// Vectors of two documents have no birth in common, so there are as many as documents at least, which are read faster.
	if _, all, err := s.ids(ctx, "SearchVersions", searchBirths); err != nil || !all {
		return nil, err
	}
	births, all, err := s.ids(ctx, "SearchBirths", searchBirths)
	if err != nil || !all {
		return nil, err
	}
	return append([]string{}, births...), nil
}

// ended is a search that has seen the whole collection. When SQL knows more visible segments than it found, a version became
// visible meanwhile and the search starts over, or the store has lost vectors and the answer is partial.
func (s *nearest) ended(ctx context.Context, res ingest.SearchResult) (ingest.SearchResult, bool, error) {
	visible, _, err := s.ids(ctx, "SearchVisible", s.k)
	if err != nil || len(visible) <= len(res.Hits) {
		return res, false, err
	}
	s.missing = len(visible) - len(res.Hits)
	return res, true, nil
}

// look reads the database's clock before anything is looked for.
// A version's vectors are all written before the statement that closes its predecessor,
// so a predecessor closed before this clock cannot hide its successor from what is read after it.
func (s *nearest) look(ctx context.Context) error {
	m, err := s.r.store.Moment(ctx)
	s.since = m.Now
	return err
}

// fetch reads the n nearest vectors; births limits them, and were read after the clock.
func (s *nearest) fetch(ctx context.Context, n int, births []string) ([]ingest.Hit, error) {
	if births == nil {
		if err := s.look(ctx); err != nil {
			return nil, err
		}
	}
	hits, err := s.r.vectors.Query(ctx, s.base.Collection, s.vector, n, births)
	if err != nil {
		return nil, fmt.Errorf("query vectors: %w", err)
	}
	return hits, nil
}

// filtered asks once more for vectors of visible births only; still short means partial, unless these were all.
func (s *nearest) filtered(ctx context.Context) (ingest.SearchResult, bool, error) {
	if err := s.look(ctx); err != nil {
		return ingest.SearchResult{}, false, err
	}
	births, all, err := s.ids(ctx, "SearchBirths", searchBirths)
	if err != nil || len(births) == 0 {
		return ingest.SearchResult{Partial: true}, false, err
	}
	n := min(s.k*searchOver, searchCap)
	hits, err := s.fetch(ctx, n, births)
	if err != nil {
		return ingest.SearchResult{}, false, err
	}
	res, switched, err := s.join(ctx, hits)
	if err == nil && !switched && all && len(hits) < n {
		return s.ended(ctx, res)
	}
	res.Partial = len(res.Hits) < s.k
	return res, switched, err
}

// join keeps the hits whose segment is visible now, best first, at most k.
// switched tells that a version was closed since the fetch began: its successor's vectors may be missing from hits.
func (s *nearest) join(ctx context.Context, hits []ingest.Hit) (res ingest.SearchResult, switched bool, err error) {
	if len(hits) == 0 {
		return ingest.SearchResult{Hits: []ingest.SearchHit{}}, false, nil
	}
	args := []any{s.base.ID, s.since}
	for _, h := range hits {
		args = append(args, h.ID)
	}
	args = append(args, s.filter.Args...)
	type row struct {
		id      string
		visible bool
		hit     ingest.SearchHit
	}
	rows, err := sqldb.ReadAll(ctx, s.r.store, "join hits", s.r.q.List("SearchJoin", len(hits))+s.filter.Text, args, func(rows *sql.Rows) (x row, err error) {
		x.hit, x.visible, err = scanHit(rows, &x.id)
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

// scanHit reads a row that SearchJoin or TextJoin returns: some columns of the statement's own, then whether the segment is visible,
// and what a hit shows of it.
func scanHit(rows *sql.Rows, own ...any) (h ingest.SearchHit, visible bool, err error) {
	var path string
	var breaks sql.NullString
	var shown int
	err = rows.Scan(append(own, &shown, &h.DocumentID, &h.Title, &h.FileName, &h.VersionID, &h.Version, &h.SegmentIndex, &h.Page, &breaks, &path, &h.Text, &h.Around[0], &h.Around[1], &h.Metadata, &h.ParentID)...)
	h.VersionID, h.ParentID = strings.TrimSpace(h.VersionID), strings.TrimSpace(h.ParentID)
	h.HeadingPath, h.PageBreaks = headings(path), pageBreaks(breaks)
	return h, shown == 1, err
}
