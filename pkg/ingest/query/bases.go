package query

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/internal/dbq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Base finds a live base by id or by its owner's name for it; empty means DefaultBase.
func (r *Reads) Base(ctx context.Context, c ingest.Caller, idOrName string) (ingest.Base, error) {
	if idOrName == "" {
		idOrName = ingest.DefaultBase
	}
	if catalog.UUIDText.MatchString(idOrName) {
		b, err := dbq.ReadRow(ctx, r.store, catalog.BaseFrom, r.q.Get("BaseByID"), idOrName)
		if err == nil && !c.Scope.All() && b.UserID != c.Scope.UserID {
			return ingest.Base{}, ingest.ErrBaseNotFound
		}
		if !errors.Is(err, ingest.ErrBaseNotFound) {
			return b, err
		}
	}
	return dbq.ReadRow(ctx, r.store, catalog.BaseFrom, r.q.Get("BaseByName"), c.Scope.UserID, idOrName)
}

// Bases lists live bases, by default the newest first.
func (r *Reads) Bases(ctx context.Context, c ingest.Caller, q ingest.BaseQuery) ([]ingest.Base, error) {
	l := r.list("Base")
	if !c.Scope.All() {
		l.add(r.q.Get("BaseOwner"), c.Scope.UserID)
	}
	if q.Base != "" {
		base, err := r.Base(ctx, c, q.Base)
		if err != nil {
			return nil, err
		}
		l.add(r.q.Get("BaseID"), base.ID)
	}
	l.documents(q.Statuses, q.Stage)
	if q.Text != "" {
		l.add(r.q.Get("BaseText"), likeText(q.Text))
	}
	l.times(q.Times)
	l.page(cmp.Or(q.Sort, taskstate.SortCreatedDesc), q.After, q.Limit)
	return dbq.Collect(ctx, r.store, "list knowledge bases", l.text.String(), l.args, func(rows *sql.Rows) (ingest.Base, error) { return catalog.BaseFrom(rows) })
}

// CreateBase makes a base. ErrBaseExists when its user has a live one of that name.
func (r *Reads) CreateBase(ctx context.Context, c ingest.Caller, name string) (ingest.Base, error) {
	if _, err := dbq.ReadRow(ctx, r.store, catalog.BaseFrom, r.q.Get("BaseByName"), c.Scope.UserID, name); err == nil {
		return ingest.Base{}, ingest.ErrBaseExists
	} else if !errors.Is(err, ingest.ErrBaseNotFound) {
		return ingest.Base{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return ingest.Base{}, fmt.Errorf("make id: %w", err)
	}
	err = r.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, r.q.Get("BaseInsert"), id.String(), c.Scope.UserID, name, name, m.Now, m.Now)
		return err
	})
	b, readErr := dbq.ReadRow(ctx, r.store, catalog.BaseFrom, r.q.Get("BaseByName"), c.Scope.UserID, name)
	switch {
	case readErr == nil && b.ID == id.String():
		return b, nil // onTransition after an unknown commit
	case readErr == nil:
		return ingest.Base{}, ingest.ErrBaseExists // somebody else was first
	case err != nil:
		return ingest.Base{}, fmt.Errorf("create knowledge base: %w", err)
	}
	return ingest.Base{}, readErr
}

// BaseSummary counts a base's documents and tasks.
func (r *Reads) BaseSummary(ctx context.Context, c ingest.Caller, idOrName string) (ingest.Summary, error) {
	b, err := r.Base(ctx, c, idOrName)
	if err != nil {
		return ingest.Summary{}, err
	}
	s := ingest.Summary{Base: b, Documents: map[ingest.DocumentStatus]int64{}}
	type row struct {
		status      ingest.DocumentStatus
		n, segments int64
	}
	rows, err := dbq.Collect(ctx, r.store, "count documents", r.q.Get("BaseDocuments"), []any{b.ID}, func(rows *sql.Rows) (row, error) {
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
	at, err := dbq.ReadRow(ctx, r.store, func(row dbq.Scanner) (at taskstate.DBTime, err error) { return at, row.Scan(&at) }, r.q.Get("BaseOldestWaiting"), base)
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
