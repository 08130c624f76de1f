package query

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// recentWindow is how far back "recent" looks.
const recentWindow = time.Hour

// Stats returns an operator's counts; Tasks equals the rows' GROUP BY at one instant. SuspendedLength counts tasks without a copy in
// RabbitMQ too (design D19).
func (r *Reads) Stats(ctx context.Context, c ingest.Caller) (ingest.Stats, error) {
	s, err := r.counts(ctx, c.Scope)
	if err != nil {
		return ingest.Stats{}, err
	}
	if r.queue != nil {
		if s.StreamLength, err = r.queue.StreamLength(ctx); err != nil {
			return ingest.Stats{}, err
		}
	}
	if s.Pace, err = r.pace(ctx, c, "", s.Tasks); err != nil {
		return ingest.Stats{}, err
	}
	m, err := r.store.Moment(ctx)
	if err != nil {
		return ingest.Stats{}, err
	}
	type row struct {
		minute string
		to     taskstate.Status
		n      int64
	}
	rows, err := sqldb.ReadAll(ctx, r.store, "recent changes", r.q.Get("RecentChanges"), []any{m.Now.Add(-recentWindow)}, func(rows *sql.Rows) (row, error) {
		var x row
		return x, rows.Scan(&x.minute, &x.to, &x.n)
	})
	for _, x := range rows {
		s.Recent[x.to] += x.n
		at, err := time.Parse("2006-01-02T15:04", x.minute)
		if err != nil {
			return s, fmt.Errorf("minute of changes: %w", err)
		}
		if n := len(s.Minutes); n == 0 || !s.Minutes[n-1].At.Equal(at) {
			s.Minutes = append(s.Minutes, ingest.Minute{At: at, Changes: map[taskstate.Status]int64{}})
		}
		s.Minutes[len(s.Minutes)-1].Changes[x.to] = x.n
	}
	return s, err
}
