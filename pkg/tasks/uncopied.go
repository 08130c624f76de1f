package tasks

import (
	"context"
	"database/sql"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Uncopied is a task that waits or runs and of which RabbitMQ has confirmed no copy although it was asked (design D19).
type Uncopied struct {
	Task   taskstate.Task
	Reason string    // of the last try
	At     time.Time // of the last try
}

// uncopiedRow is a row of mirror_failure.
type uncopiedRow struct {
	id, reason string
	at         time.Time
}

// Uncopied returns up to limit tasks without a copy behind a place, the newest try first. Those that are SUSPENDED are left out: they
// are listed as such.
func (s *Service) Uncopied(ctx context.Context, c Caller, after *taskstate.Cursor, limit int) ([]Uncopied, error) {
	var out []Uncopied
	place := taskstate.Cursor{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	if after != nil {
		place = *after
	}
	for len(out) < limit {
		rows, err := sqldb.ReadAll(ctx, s.d.Store, "read which tasks have no copy", s.q.Get("Uncopied"), []any{place.At, place.At, place.ID, limit},
			func(rows *sql.Rows) (r uncopiedRow, err error) {
				var at taskstate.DBTime
				err = rows.Scan(&r.id, &r.reason, &at)
				r.at = at.Time
				return r, err
			})
		if err != nil || len(rows) == 0 {
			return out, err
		}
		ids := make([]string, len(rows))
		for i, r := range rows {
			ids[i] = r.id
		}
		found, err := s.d.Store.GetMany(ctx, c.Scope, ids)
		if err != nil {
			return nil, err
		}
		byID := make(map[string]taskstate.Task, len(found))
		for _, t := range found {
			byID[t.ID] = t
		}
		for _, r := range rows {
			switch t := byID[r.id]; t.Status {
			case taskstate.StatusQueued, taskstate.StatusRunning, taskstate.StatusRetrying:
				out = append(out, Uncopied{Task: t, Reason: r.reason, At: r.at})
			case taskstate.StatusNone, taskstate.StatusSuspended, taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusCancelled:
			}
		}
		place = taskstate.Cursor{At: rows[len(rows)-1].at, ID: rows[len(rows)-1].id}
	}
	return out[:limit], nil
}

// copyNow removes what is written down about a missing copy: the mirror tries again at once. It reports whether there was something.
func (s *Service) copyNow(ctx context.Context, c Caller, id string) (tries bool, err error) {
	err = s.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		removed, err := tx.ExecContext(ctx, s.q.Get("UncopiedRemove"), id)
		if err != nil {
			return err
		}
		n, err := removed.RowsAffected()
		if tries = n > 0; err != nil || !tries {
			return err
		}
		return c.WriteNote(ctx, tx, m)
	})
	return tries && err == nil, err
}
