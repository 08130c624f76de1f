// Package dbq has the loops over rows that the rooms of the ingestion share.
package dbq

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Pair is a key of two columns.
type Pair [2]string

// Compare orders pairs as an index does.
func (p Pair) Compare(q Pair) int {
	return cmp.Or(strings.Compare(p[0], q[0]), strings.Compare(p[1], q[1]))
}

// QueryRows runs a statement in a transaction and scans every row.
func QueryRows(ctx context.Context, tx taskstate.Tx, what, query string, params []any, scan func(*sql.Rows) error) error {
	if err := sqldb.Each(ctx, tx, scan, query, params...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// PairArgs are the keys in a fixed order, the last one repeated up to a power of two: few different texts reach the caches of statements.
func PairArgs(keys map[Pair]bool) []any {
	sorted := sqldb.Padded(slices.SortedFunc(maps.Keys(keys), Pair.Compare))
	out := make([]any, 0, 2*len(sorted))
	for _, k := range sorted {
		out = append(out, k[0], k[1])
	}
	return out
}

// Column reads the only column of all rows of a query, a text.
func Column(ctx context.Context, tx taskstate.Tx, query string, params ...any) ([]string, error) {
	out, err := sqldb.Collect(ctx, tx, sqldb.Column[string], query, params...)
	if err != nil {
		return nil, fmt.Errorf("read a column: %w", err)
	}
	return out, nil
}

// Read returns what f reads outside a transaction; f may run again, so it keeps nothing of a try that failed.
func Read[T any](ctx context.Context, s taskstate.DB, f func(ctx context.Context, db taskstate.Tx) (T, error)) (out T, err error) {
	err = s.Read(ctx, func(ctx context.Context, db taskstate.Tx) (err error) {
		out, err = f(ctx, db)
		return err
	})
	return out, err
}

// ReadRow reads the only row of a query outside a transaction.
func ReadRow[T any](ctx context.Context, s taskstate.DB, scan func(Scanner) (T, error), query string, params ...any) (T, error) {
	return Read(ctx, s, func(ctx context.Context, db taskstate.Tx) (T, error) {
		return scan(db.QueryRowContext(ctx, query, params...))
	})
}

// ReadColumn reads the only column of a query outside a transaction.
func ReadColumn(ctx context.Context, s taskstate.DB, query string, params ...any) ([]string, error) {
	return Read(ctx, s, func(ctx context.Context, db taskstate.Tx) ([]string, error) {
		return Column(ctx, db, query, params...)
	})
}

// Flag is a boolean argument that every dialect takes.
func Flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Scanner is a row that can be scanned.
type Scanner interface{ Scan(dest ...any) error }

// Collect runs a query outside a transaction and scans every row.
func Collect[T any](ctx context.Context, s taskstate.DB, what, query string, args []any, scan func(*sql.Rows) (T, error)) ([]T, error) {
	return Read(ctx, s, func(ctx context.Context, db taskstate.Tx) (out []T, err error) {
		if out, err = sqldb.Collect(ctx, db, scan, query, args...); err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return out, err
	})
}
