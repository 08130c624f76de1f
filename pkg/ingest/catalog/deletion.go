package catalog

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// NoteDeletions writes the receipts of locked documents that are being deleted; look is when they may be verified.
func (a *Catalog) NoteDeletions(ctx context.Context, tx taskstate.Tx, documents []string, by taskstate.Actor, now, look time.Time) error {
	var params []any
	err := a.List(ctx, tx, "DeletionsOf", documents, func(rows *sql.Rows) error {
		var d ingest.Deletion
		err := rows.Scan(&d.DocumentID, &d.UserID, &d.BaseID, &d.SHA256, &d.Bytes, &d.Versions)
		params = append(params, d.DocumentID, d.UserID, d.BaseID, d.SHA256, d.Bytes, d.Versions, 0, 0, "", by.String(), now, look)
		return err
	})
	if err != nil || len(params) == 0 {
		return err
	}
	if err := a.ExecList(ctx, tx, "DeletionsForget", documents); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, a.q.Rows("DeletionsInsert", len(params)/12), params...)
	return err
}

// Deletion is the receipt of a deleted document in the caller's reach. ErrNoDeletion.
func (a *Catalog) Deletion(ctx context.Context, c ingest.Caller, document string) (ingest.Deletion, error) {
	d, err := sqldb.ReadRow(ctx, a.d.Store, func(row sqldb.Scanner) (d ingest.Deletion, err error) {
		var files string
		var deleted, removed, verified taskstate.DBTime
		err = row.Scan(&d.DocumentID, &d.UserID, &d.BaseID, &d.SHA256, &d.Bytes, &d.Versions, &d.Segments, &d.Vectors, &files, &d.By, &deleted, &removed, &verified)
		d.Files, d.DeletedAt, d.RemovedAt, d.VerifiedAt = len(strings.Fields(files)), deleted.Time, removed.Time, verified.Time
		return d, err
	}, a.q.Get("Deletion"), document, sqldb.Flag(c.Scope.All()), c.Scope.UserID)
	if errors.Is(err, sql.ErrNoRows) {
		return ingest.Deletion{}, ingest.ErrNoDeletion
	}
	return d, err
}
