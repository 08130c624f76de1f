package sqldb

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// runner is a pool or one connection of it.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// session is a taskstate.Tx: it fits placeholders and arguments to the dialect.
type session struct {
	db *Database
	on runner
}

// Dialect is the database's.
func (t *session) Dialect() string { return t.db.Dialect() }

// ExecContext implements taskstate.Tx.
func (t *session) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.seen(query, false); err != nil {
		return nil, err
	}
	span := t.statement(ctx, query)
	res, err := t.on.ExecContext(ctx, Rebind(t.db.dialect(), query), t.args(args)...)
	if span != nil {
		rowsWritten(span, res, err)
	}
	if err == nil {
		err = t.seen(query, true)
	}
	if err != nil && t.db.ClassOf(err) == Unique {
		err = fmt.Errorf("%w: %w", taskstate.ErrUnique, err)
	}
	return res, err
}

// QueryContext implements taskstate.Tx.
func (t *session) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.seen(query, false); err != nil {
		return nil, err
	}
	span := t.statement(ctx, query)
	rows, err := t.on.QueryContext(ctx, Rebind(t.db.dialect(), query), t.args(args)...)
	if span != nil { // the time to the first row; the rest comes as it is read
		endSpan(span, err)
	}
	return rows, err
}

// QueryRowContext implements taskstate.Tx.
func (t *session) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	_ = t.seen(query, false) // a Row cannot carry it; only Exec and Query are made to fail
	span := t.statement(ctx, query)
	row := t.on.QueryRowContext(ctx, Rebind(t.db.dialect(), query), t.args(args)...)
	if span != nil {
		endSpan(span, row.Err())
	}
	return row
}

// seen tells the test's watch.
func (t *session) seen(query string, done bool) error {
	if t.db.Watch == nil {
		return nil
	}
	return t.db.Watch(query, done)
}

// args fits arguments to the driver; the caller's slice stays as it is.
func (t *session) args(args []any) []any {
	fit := t.db.backend.Arg
	if fit == nil {
		return args
	}
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = fit(a)
	}
	return out
}
