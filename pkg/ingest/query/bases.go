package query

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Bases lists live bases, by default the newest first.
func (r *Reads) Bases(ctx context.Context, c ingest.Caller, q ingest.ListQuery) ([]ingest.Base, error) {
	q.Sort = cmp.Or(q.Sort, taskstate.SortCreatedDesc)
	l, err := r.list(ctx, c, "Base", 1, q)
	if err != nil {
		return nil, err
	}
	return sqldb.ReadAll(ctx, r.store, "list knowledge bases", l.text.String(), l.args, func(rows *sql.Rows) (ingest.Base, error) {
		return catalog.BaseFrom(rows)
	})
}

// BaseSummary counts a base's documents and tasks.
func (r *Reads) BaseSummary(ctx context.Context, c ingest.Caller, idOrName string) (ingest.Summary, error) {
	b, err := r.cat.Base(ctx, c, idOrName)
	if err != nil {
		return ingest.Summary{}, err
	}
	s := ingest.Summary{Base: b, Documents: map[ingest.DocumentStatus]int64{}}
	type row struct {
		status      ingest.DocumentStatus
		n, segments int64
	}
	rows, err := sqldb.ReadAll(ctx, r.store, "count documents", r.q.Get("BaseDocuments"), []any{b.ID}, func(rows *sql.Rows) (row, error) {
		var x row
		return x, rows.Scan(&x.status, &x.n, &x.segments)
	})
	if err != nil {
		return ingest.Summary{}, err
	}
	var all int64
	for _, x := range rows {
		s.Documents[x.status] = x.n
		s.Segments += x.segments
		all += x.n
	}
	if all > 0 {
		s.Percent = int(100 * s.Documents[ingest.DocumentReady] / all)
	}
	if s.Tasks, err = r.store.Counts(ctx, c.Scope, b.ID); err != nil {
		return ingest.Summary{}, err
	}
	s.OldestWaiting, err = r.oldestWaiting(ctx, b.ID)
	return s, err
}

// oldestWaiting is the age of the base's oldest task that has not ended; 0: none.
func (r *Reads) oldestWaiting(ctx context.Context, base string) (time.Duration, error) {
	at, err := sqldb.ReadRow(ctx, r.store, func(row sqldb.Scanner) (at taskstate.DBTime, err error) { return at, row.Scan(&at) }, r.q.Get("BaseOldestWaiting"), base)
	if err != nil {
		return 0, fmt.Errorf("oldest waiting task: %w", err)
	}
	if at.IsZero() {
		return 0, nil
	}
	m, err := r.store.Moment(ctx)
	if err != nil {
		return 0, err
	}
	return max(m.Now.Sub(at.Time), 0), nil
}
