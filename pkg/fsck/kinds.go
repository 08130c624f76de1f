package fsck

import (
	"context"
	"database/sql"
	"slices"

	"github.com/millweir/millweir/pkg/sqldb"
)

// The kinds of what an example of a violation is about, as Kinds names them.
const (
	KindTask     = "task"
	KindDocument = "document"
	KindBase     = "base" // a knowledge base
)

// Kinds tells which of ids are those of tasks, documents and knowledge bases that are there; others are missing from the map.
func Kinds(ctx context.Context, db DB, ids []string) (map[string]string, error) {
	q := sqldb.MustLoad(queryFiles, "queries", db.Dialect())
	out := map[string]string{}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !sqldb.ASCII(id) })
	for part := range slices.Chunk(ids, repairBatch) {
		args := slices.Concat(sqldb.Args(part), sqldb.Args(part), sqldb.Args(part))
		err := sqldb.Each(ctx, db.Reader(), func(rows *sql.Rows) error {
			var kind, id string
			err := rows.Scan(&kind, &id)
			out[id] = kind
			return err
		}, q.List("Kinds", len(part), len(part), len(part)), args...)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
