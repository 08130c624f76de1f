package query

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
)

const (
	// joinSpare is how many more than the hits wanted are joined at first: most of what the index finds is visible.
	joinSpare = 4
	// joinMost bounds what one statement joins.
	joinMost = 4 * MaxTopK
)

// text finds segments by their words. The index first, rows second: what it found is joined with what is visible now.
// A filter that selects many documents is not given to the index, unless too few of its hits pass.
func (s *searching) text(ctx context.Context, depth int) (found, error) {
	f, err := s.textAgain(ctx, depth, fewVersions)
	if err == nil && f.Partial && s.filter.Text != "" {
		f, err = s.textAgain(ctx, depth, manyVersions)
	}
	return f, err
}

// textAgain tries again while versions are switched under it.
func (s *searching) textAgain(ctx context.Context, depth, versions int) (found, error) {
	for try := 0; ; try++ {
		res, mark, switched, err := s.textOnce(ctx, depth+1, versions)
		if err == nil && switched && try < searchAgain {
			continue
		}
		res.Partial = res.Partial || switched
		return first(res, mark, depth), err
	}
}

// textOnce looks for more and more until k hits are visible or there are no more. switched: a version was closed since the
// look began, and the index may have been read before its successor's words were written.
func (s *searching) textOnce(ctx context.Context, k, versions int) (res ingest.SearchResult, mark *textindex.Highlighter, switched bool, err error) {
	res.Mode = ingest.SearchText
	m, err := s.r.store.Moment(ctx)
	if err != nil {
		return res, nil, false, err
	}
	only, err := s.allowed(ctx, versions)
	if err != nil {
		return res, nil, false, err
	}
	var allowed func(string) bool
	if only != nil {
		allowed = func(version string) bool { return only[version] }
	}
	for n := min(k*searchOver, searchCap); ; n = min(2*n, searchCap) {
		got, err := s.r.index.Search(ctx, s.base.ID, s.query, n, allowed)
		if err != nil {
			return res, nil, false, err
		}
		res.Suggestion, mark = got.Suggestion, got.Highlighter(s.query)
		if res.Hits, switched, err = s.joinText(ctx, m.Now, got.Found, k); err != nil || switched {
			return res, mark, switched, err
		}
		if len(res.Hits) < k && len(got.Found) == n && n < searchCap {
			continue
		}
		res.Partial = len(res.Hits) < k && len(got.Found) == n
		return res, mark, false, nil
	}
}

// joinText keeps the segments that are visible now and still have the text that was found, best first, at most k. Several
// statements see several moments: each later one also looks whether the versions are visible still that hits were taken from.
func (s *searching) joinText(ctx context.Context, since time.Time, matches []textindex.Found, k int) (hits []ingest.SearchHit, switched bool, err error) {
	hits = []ingest.SearchHit{}
	var taken []string
	for from, together := 0, k+joinSpare; from < len(matches) && len(hits) < k && !switched; together = joinMost {
		some := matches[from:min(len(matches), from+min(together, joinMost))]
		from += len(some)
		rows, err := s.textRows(ctx, since, some, taken)
		if err != nil {
			return nil, false, err
		}
		for _, version := range taken {
			switched = switched || !rows[textKey{version, 0}].visible
		}
		for _, f := range some {
			row, known := rows[textKey{f.Version, f.Index}]
			switch {
			case !known || textindex.HashOf(row.hash) != f.Hash:
			case !row.visible:
				switched = true
			case len(hits) < k:
				row.hit.Score, row.hit.TextScore, row.hit.TextShare = f.Score, new(f.Score), f.Share
				hits = append(hits, row.hit)
				delete(rows, textKey{f.Version, f.Index})
				if !slices.Contains(taken, f.Version) {
					taken = append(taken, f.Version)
				}
			}
		}
	}
	return hits, switched, nil
}

// textKey names a segment's row.
type textKey struct {
	version string
	index   int
}

// textRow is the row of a segment that was found.
type textRow struct {
	textKey
	visible bool
	hash    string
	hit     ingest.SearchHit
}

// textRows reads the rows of segments, of visible versions and of those closed since, and the first rows of the versions taken.
func (s *searching) textRows(ctx context.Context, since time.Time, matches []textindex.Found, taken []string) (map[textKey]textRow, error) {
	args := []any{s.base.ID, since}
	for _, f := range matches {
		args = append(args, f.Version, f.Index)
	}
	for _, version := range taken {
		args = append(args, version, 0)
	}
	join := s.r.q.Any("TextJoin", len(matches)+len(taken)) + s.filter.Text
	rows, err := sqldb.ReadAll(ctx, s.r.store, "join hits", join, append(args, s.filter.Args...), func(rows *sql.Rows) (x textRow, err error) {
		x.hit, x.visible, err = scanHit(rows, &x.hash)
		x.version, x.index = x.hit.VersionID, x.hit.SegmentIndex
		return x, err
	})
	out := make(map[textKey]textRow, len(rows))
	for _, x := range rows {
		out[x.textKey] = x
	}
	return out, err
}
