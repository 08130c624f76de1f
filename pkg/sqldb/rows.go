package sqldb

import (
	"context"
	"database/sql"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Each calls f for every row of a query.
func Each(ctx context.Context, tx taskstate.Tx, f func(*sql.Rows) error, query string, args ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Collect reads all rows of a query.
func Collect[T any](ctx context.Context, tx taskstate.Tx, scan func(*sql.Rows) (T, error), query string, args ...any) (out []T, err error) {
	err = Each(ctx, tx, func(rows *sql.Rows) error {
		one, err := scan(rows)
		out = append(out, one)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Column scans a row's only column.
func Column[T any](rows *sql.Rows) (v T, err error) { return v, rows.Scan(&v) }

// Args turns values into arguments.
func Args[T any](values []T, more ...any) []any {
	out := make([]any, 0, len(values)+len(more))
	for _, v := range values {
		out = append(out, v)
	}
	return append(out, more...)
}

// Padded is values with the last one repeated up to a power of two; the caller's slice stays as it is.
func Padded[T any](values []T) []T {
	n := 1
	for n < len(values) {
		n *= 2
	}
	out := make([]T, len(values), n)
	copy(out, values)
	for len(out) > 0 && len(out) < n {
		out = append(out, values[len(values)-1])
	}
	return out
}
