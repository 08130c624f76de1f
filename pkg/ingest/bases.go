package ingest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/taskstate"
)

// DefaultBase is the name of the base that is meant when none is named (contract §4); an upload makes it when it is missing.
const DefaultBase = "default"

// uuidText matches ids as we write them.
var uuidText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Base finds a live base by id or by its owner's name for it; empty means DefaultBase.
func (r *Reads) Base(ctx context.Context, c Caller, idOrName string) (Base, error) {
	if idOrName == "" {
		idOrName = DefaultBase
	}
	if uuidText.MatchString(idOrName) {
		b, err := readRow(ctx, r.store, baseFrom, r.q.Get("BaseByID"), idOrName)
		if err == nil && !c.Scope.All() && b.UserID != c.Scope.UserID {
			return Base{}, ErrBaseNotFound
		}
		if !errors.Is(err, ErrBaseNotFound) {
			return b, err
		}
	}
	return readRow(ctx, r.store, baseFrom, r.q.Get("BaseByName"), c.Scope.UserID, idOrName)
}

// Bases lists live bases, by default the newest first.
func (r *Reads) Bases(ctx context.Context, c Caller, q BaseQuery) ([]Base, error) {
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
	return collect(ctx, r.store, "list knowledge bases", l.text.String(), l.args, func(rows *sql.Rows) (Base, error) { return baseFrom(rows) })
}

// CreateBase makes a base. ErrBaseExists when its user has a live one of that name.
func (r *Reads) CreateBase(ctx context.Context, c Caller, name string) (Base, error) {
	if _, err := readRow(ctx, r.store, baseFrom, r.q.Get("BaseByName"), c.Scope.UserID, name); err == nil {
		return Base{}, ErrBaseExists
	} else if !errors.Is(err, ErrBaseNotFound) {
		return Base{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Base{}, fmt.Errorf("make id: %w", err)
	}
	err = r.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, r.q.Get("BaseInsert"), id.String(), c.Scope.UserID, name, name, m.Now, m.Now)
		return err
	})
	b, readErr := readRow(ctx, r.store, baseFrom, r.q.Get("BaseByName"), c.Scope.UserID, name)
	switch {
	case readErr == nil && b.ID == id.String():
		return b, nil // onTransition after an unknown commit
	case readErr == nil:
		return Base{}, ErrBaseExists // somebody else was first
	case err != nil:
		return Base{}, fmt.Errorf("create knowledge base: %w", err)
	}
	return Base{}, readErr
}

// BaseSummary counts a base's documents and tasks.
func (r *Reads) BaseSummary(ctx context.Context, c Caller, idOrName string) (Summary, error) {
	b, err := r.Base(ctx, c, idOrName)
	if err != nil {
		return Summary{}, err
	}
	s := Summary{Base: b, Documents: map[DocumentStatus]int64{}}
	type row struct {
		status      DocumentStatus
		n, segments int64
	}
	rows, err := collect(ctx, r.store, "count documents", r.q.Get("BaseDocuments"), []any{b.ID}, func(rows *sql.Rows) (row, error) {
		var x row
		return x, rows.Scan(&x.status, &x.n, &x.segments)
	})
	if err != nil {
		return Summary{}, err
	}
	var all int64
	for _, x := range rows {
		s.Documents[x.status] = x.n
		s.Segments += x.segments
		all += x.n
	}
	if all > 0 {
		s.Percent = int(100 * s.Documents[DocumentReady] / all)
	}
	if s.Tasks, err = r.store.Counts(ctx, c.Scope, b.ID); err != nil {
		return Summary{}, err
	}
	s.OldestWaiting, err = r.oldestWaiting(ctx, b.ID)
	return s, err
}

// oldestWaiting is the age of the base's oldest task that has not ended; 0: none.
func (r *Reads) oldestWaiting(ctx context.Context, base string) (time.Duration, error) {
	at, err := readRow(ctx, r.store, func(row scanner) (at taskstate.DBTime, err error) { return at, row.Scan(&at) }, r.q.Get("BaseOldestWaiting"), base)
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

// scanner is a row that can be scanned.
type scanner interface{ Scan(dest ...any) error }

// baseFrom reads BaseByID's columns. ErrBaseNotFound when there is no row.
func baseFrom(row scanner) (Base, error) {
	var b Base
	var created, updated taskstate.DBTime
	err := row.Scan(&b.ID, &b.UserID, &b.Name, &b.Model.Key, &b.Model.Dim, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return Base{}, ErrBaseNotFound
	}
	if err != nil {
		return Base{}, fmt.Errorf("read knowledge base: %w", err)
	}
	b.CreatedAt, b.UpdatedAt = created.Time, updated.Time
	return b, nil
}

// collect runs a query outside a transaction and scans every row.
func collect[T any](ctx context.Context, s taskstate.Store, what, query string, args []any, scan func(*sql.Rows) (T, error)) ([]T, error) {
	out, err := read(ctx, s, func(ctx context.Context, db taskstate.Tx) ([]T, error) {
		rows, err := db.QueryContext(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }() // Err tells what went wrong
		var out []T
		for rows.Next() {
			v, err := scan(rows)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}
