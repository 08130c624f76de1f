package query

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
)

// searchText finds segments by their words. The index first, rows second: what it found is joined with what is visible now.
func (r *Reads) searchText(ctx context.Context, base ingest.Base, query string, k int) (res ingest.SearchResult, mark *textindex.Highlighter, err error) {
	for try := 0; ; try++ {
		var switched bool
		res, mark, switched, err = r.textOnce(ctx, base.ID, query, k)
		if err != nil || !switched {
			return res, mark, err
		}
		if try == searchAgain {
			res.Partial = true
			return res, mark, nil
		}
	}
}

// textOnce looks for more and more until k hits are visible or there are no more. switched: a version was closed since the
// look began, and the index may have been read before its successor's words were written.
func (r *Reads) textOnce(ctx context.Context, base, query string, k int) (res ingest.SearchResult, mark *textindex.Highlighter, switched bool, err error) {
	m, err := r.store.Moment(ctx)
	if err != nil {
		return res, nil, false, err
	}
	for n := k * searchOver; ; n = min(2*n, searchCap) {
		found, err := r.index.Search(ctx, base, query, n, nil)
		if err != nil {
			return res, nil, false, err
		}
		res = ingest.SearchResult{Mode: ingest.SearchText, Suggestion: found.Suggestion}
		if res.Hits, switched, err = r.joinText(ctx, base, m.Now, found.Found, k); err != nil || switched {
			return res, found.Highlighter(query), switched, err
		}
		if len(res.Hits) < k && len(found.Found) == n && n < searchCap {
			continue
		}
		res.Partial = len(res.Hits) < k && len(found.Found) == n
		return res, found.Highlighter(query), false, nil
	}
}

// joinText keeps the segments that are visible now and still have the text that was found, best first, at most k.
func (r *Reads) joinText(ctx context.Context, base string, since time.Time, found []textindex.Found, k int) (hits []ingest.SearchHit, switched bool, err error) {
	hits = []ingest.SearchHit{}
	for len(found) > 0 && len(hits) < k {
		some := found[:min(len(found), 4*MaxTopK)]
		found = found[len(some):]
		rows, err := r.textRows(ctx, base, since, some)
		if err != nil {
			return nil, false, err
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

// textRows reads the rows of segments: of visible versions, and of those closed since.
func (r *Reads) textRows(ctx context.Context, base string, since time.Time, found []textindex.Found) (map[textKey]textRow, error) {
	args := []any{base, since}
	for _, f := range found {
		args = append(args, f.Version, f.Index)
	}
	rows, err := sqldb.ReadAll(ctx, r.store, "join hits", r.q.Any("TextJoin", len(found)), args, func(rows *sql.Rows) (x textRow, err error) {
		var visible int
		var path string
		var breaks sql.NullString
		err = rows.Scan(&x.version, &x.index, &x.hash, &visible, &x.hit.DocumentID, &x.hit.Title, &x.hit.FileName, &x.hit.Version,
			&x.hit.Page, &breaks, &path, &x.hit.Text)
		x.version, x.visible = strings.TrimSpace(x.version), visible == 1
		x.hit.SegmentIndex, x.hit.HeadingPath, x.hit.PageBreaks = x.index, headings(path), pageBreaks(breaks)
		return x, err
	})
	out := make(map[textKey]textRow, len(rows))
	for _, x := range rows {
		out[x.textKey] = x
	}
	return out, err
}
