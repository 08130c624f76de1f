package sqldb

import (
	"context"
	"database/sql"
	"maps"
	"slices"

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

// QueryRows is Each that says in errors what was being done.
func QueryRows(ctx context.Context, tx taskstate.Tx, what, query string, args []any, f func(*sql.Rows) error) error {
	return wrap(what, Each(ctx, tx, f, query, args...))
}

// Texts reads the only column of all rows of a query.
func Texts(ctx context.Context, tx taskstate.Tx, query string, args ...any) ([]string, error) {
	out, err := Collect(ctx, tx, Column[string], query, args...)
	return out, wrap("read a column", err)
}

// Source is read outside a transaction; every database is one.
type Source interface {
	Read(ctx context.Context, f taskstate.ReadFunc) error
}

// Read returns what f reads outside a transaction; f may run again, so it keeps nothing of a try that failed.
func Read[T any](ctx context.Context, db Source, f func(ctx context.Context, tx taskstate.Tx) (T, error)) (out T, err error) {
	err = db.Read(ctx, func(ctx context.Context, tx taskstate.Tx) (err error) {
		out, err = f(ctx, tx)
		return err
	})
	return out, err
}

// ReadAll reads all rows of a query outside a transaction, and says in errors what was being done.
func ReadAll[T any](ctx context.Context, db Source, what, query string, args []any, scan func(*sql.Rows) (T, error)) ([]T, error) {
	return Read(ctx, db, func(ctx context.Context, tx taskstate.Tx) ([]T, error) {
		out, err := Collect(ctx, tx, scan, query, args...)
		return out, wrap(what, err)
	})
}

// ReadRow reads the only row of a query outside a transaction.
func ReadRow[T any](ctx context.Context, db Source, scan func(Scanner) (T, error), query string, args ...any) (T, error) {
	return Read(ctx, db, func(ctx context.Context, tx taskstate.Tx) (T, error) {
		return scan(tx.QueryRowContext(ctx, query, args...))
	})
}

// ReadTexts reads the only column of a query outside a transaction.
func ReadTexts(ctx context.Context, db Source, query string, args ...any) ([]string, error) {
	return Read(ctx, db, func(ctx context.Context, tx taskstate.Tx) ([]string, error) {
		return Texts(ctx, tx, query, args...)
	})
}

// Scanner is a row that can be scanned.
type Scanner interface{ Scan(dest ...any) error }

// Flag is a boolean argument that every dialect takes.
func Flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Pair is a key of two columns.
type Pair [2]string

// Compare orders pairs as an index does.
func (p Pair) Compare(q Pair) int { return slices.Compare(p[:], q[:]) }

// PairArgs are keys in a fixed order, the last one repeated up to a power of two: few different texts reach the caches of statements.
func PairArgs[V any](keys map[Pair]V) []any {
	sorted := Padded(slices.SortedFunc(maps.Keys(keys), Pair.Compare))
	out := make([]any, 0, 2*len(sorted))
	for _, k := range sorted {
		out = append(out, k[0], k[1])
	}
	return out
}
