package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Attachment is a live document that is an attachment of a message.
type Attachment struct {
	ID, FileName, SHA256 string
	Metadata             ingest.Metadata // as Document's
	No                   int64           // as Parent's
}

// VersionOfTask returns the number of the version that a task has made of a document, and that of the document's visible one.
// ErrDocumentNotFound for unknown and foreign documents and tombstones, and when the version is not of the task.
func (a *Catalog) VersionOfTask(ctx context.Context, user, document, task string) (no, visible int64, err error) {
	pair, err := sqldb.ReadRow(ctx, a.d.Store, func(row sqldb.Scanner) (p [2]int64, err error) { return p, row.Scan(&p[0], &p[1]) },
		a.q.Get("VersionOfTask"), document, task, user)
	if errors.Is(err, sql.ErrNoRows) {
		err = ingest.ErrDocumentNotFound
	}
	return pair[0], pair[1], err
}

// Ancestors counts the messages around a document, at most so many.
func (a *Catalog) Ancestors(ctx context.Context, document string, most int) (n int, err error) {
	for ; n < most; n++ {
		found, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("DocumentParent"), document)
		if err != nil || len(found) == 0 || strings.TrimSpace(found[0]) == "" {
			return n, err
		}
		document = strings.TrimSpace(found[0])
	}
	return n, nil
}

// Attachments lists the live attachments of a message, the oldest first.
func (a *Catalog) Attachments(ctx context.Context, message string) ([]Attachment, error) {
	return sqldb.ReadAll(ctx, a.d.Store, "list attachments", a.q.Get("Attachments"), []any{message}, func(rows *sql.Rows) (x Attachment, err error) {
		return x, rows.Scan(&x.ID, &x.FileName, &x.SHA256, &x.Metadata, &x.No)
	})
}

// KeepAttachment notes that a version of a message has an attachment that an earlier one had; a later version may have noted that before.
func (a *Catalog) KeepAttachment(ctx context.Context, attachment string, p ingest.Parent) error {
	err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, a.q.Get("AttachmentKeep"), p.No, attachment, p.ID, p.No)
		return err
	})
	if err != nil {
		return fmt.Errorf("keep attachment %s: %w", attachment, err)
	}
	return nil
}
