package catalog

import (
	"context"
	"database/sql"
	"strings"

	"github.com/millweir/millweir/pkg/sqldb"
)

// Made says with which readers and which splitter visible versions of a base were made, and how many there are.
type Made struct {
	Extractor, Splitter string
	Documents, Segments int64
}

// Made groups the visible versions of a base by what they were made with.
func (a *Catalog) Made(ctx context.Context, base string) ([]Made, error) {
	return sqldb.ReadAll(ctx, a.d.Store, "group documents by what they were made with", a.q.Get("BaseMade"), []any{base}, func(rows *sql.Rows) (m Made, err error) {
		return m, rows.Scan(&m.Extractor, &m.Splitter, &m.Documents, &m.Segments)
	})
}

// TokensMade counts the tokens of the segments of visible versions that were made with one of some; there is at least one.
func (a *Catalog) TokensMade(ctx context.Context, base string, with []Made) (n int64, err error) {
	return sqldb.ReadRow(ctx, a.d.Store, func(row sqldb.Scanner) (n int64, err error) { return n, row.Scan(&n) },
		a.q.Any("TokensMade", len(with)), madeArgs(with, base)...)
}

// MadeDocument is a document with a visible version.
type MadeDocument struct{ ID, LatestTask string }

// MadeWith lists documents of a base whose visible version was made with one of some, behind an id, in the order of their ids.
func (a *Catalog) MadeWith(ctx context.Context, base string, with []Made, after string, limit int) ([]MadeDocument, error) {
	return sqldb.ReadAll(ctx, a.d.Store, "list documents by what they were made with", a.q.Any("DocumentsMade", len(with)),
		append(madeArgs(with, base, after), limit), func(rows *sql.Rows) (d MadeDocument, err error) {
			err = rows.Scan(&d.ID, &d.LatestTask)
			d.ID, d.LatestTask = strings.TrimSpace(d.ID), strings.TrimSpace(d.LatestTask)
			return d, err
		})
}

func madeArgs(with []Made, args ...any) []any {
	for _, m := range with {
		args = append(args, m.Extractor, m.Splitter)
	}
	return args
}
