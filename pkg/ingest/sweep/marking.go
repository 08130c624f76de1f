package sweep

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// marking removes rows and says which of their vectors may be deleted.
type marking struct{ *Sweeper }

// markRows removes the rows that read returns, under the document's lock. Vectors of theirs that no open or visible version holds,
// and whose birth is closed, are marked for deletion in the same transaction: from now on SQL names them as garbage.
func (a marking) markRows(ctx context.Context, document, base string, read func(context.Context, taskstate.Tx) ([]catalog.NamedRow, error)) (int, error) {
	n := 0
	err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		n = 0
		if _, err := a.cat.LockDocuments(ctx, tx, []string{document}); err != nil {
			return err
		}
		rows, err := read(ctx, tx)
		if err != nil {
			return fmt.Errorf("read rows to sweep: %w", err)
		}
		for page := range slices.Chunk(rows, catalog.PageSize) {
			if err := a.markPage(ctx, tx, document, base, page, m.Now); err != nil {
				return err
			}
		}
		if n = len(rows); n == 0 {
			return nil
		}
		_, err = tx.ExecContext(ctx, a.q.Get("DeletionSegments"), n, document) // of a document that lives there is no receipt
		return err
	})
	if n > 0 && err == nil {
		err = crash.Fault("gc.after_mark")
	}
	return n, err
}

// markPage removes one page of rows: free vectors are marked, those of a version that is still open are only named.
func (a marking) markPage(ctx context.Context, tx taskstate.Tx, document, base string, rows []catalog.NamedRow, now time.Time) error {
	ids := make([]any, len(rows))
	for i, n := range rows {
		ids[i] = n.ID
	}
	if _, err := tx.ExecContext(ctx, a.q.List("RowsDelete", len(rows)), ids...); err != nil {
		return fmt.Errorf("remove swept rows: %w", err)
	}
	free, open, err := a.judgeVectors(ctx, tx, rows)
	if err != nil {
		return err
	}
	if len(free) > 0 {
		params := make([]any, 0, len(free)*6)
		for _, n := range free {
			params = append(params, n.Vector, base, document, n.Birth, now, now)
		}
		if _, err := tx.ExecContext(ctx, a.q.Rows("GarbageMark", len(free)), params...); err != nil {
			return fmt.Errorf("mark vectors: %w", err)
		}
	}
	return a.cat.DropRows(ctx, tx, base, document, open, now.Add(stillOpen))
}

// judgeVectors sorts vectors that lost a row: free ones may be deleted, open ones belong to a BUILDING version,
// and those that a row of an open or visible version still names are in neither. The document must be locked.
func (a marking) judgeVectors(ctx context.Context, tx taskstate.Tx, rows []catalog.NamedRow) (free, open []catalog.NamedRow, err error) {
	vectors := make([]string, 0, len(rows))
	births := make([]string, 0, len(rows))
	once := map[string]bool{}
	for _, n := range rows {
		vectors = append(vectors, n.Vector)
		if !once[n.Birth] {
			once[n.Birth] = true
			births = append(births, n.Birth)
		}
	}
	held, err := a.cat.Set(ctx, tx, "IdsHeld", vectors)
	if err != nil {
		return nil, nil, fmt.Errorf("look who holds vectors: %w", err)
	}
	building, err := a.cat.Set(ctx, tx, "BirthsOpen", births)
	if err != nil {
		return nil, nil, fmt.Errorf("look at birth versions: %w", err)
	}
	taken := map[string]bool{}
	for _, n := range rows {
		switch {
		case held[n.Vector] || taken[n.Vector]:
		case building[n.Birth]:
			open = append(open, n)
		default:
			free = append(free, n)
		}
		taken[n.Vector] = true
	}
	return free, open, nil
}

// readNamed reads rows with the vectors that they name.
func readNamed(ctx context.Context, tx taskstate.Tx, query string, params ...any) (out []catalog.NamedRow, err error) {
	err = sqldb.QueryRows(ctx, tx, "read rows to sweep", query, params, func(rows *sql.Rows) error {
		var n catalog.NamedRow
		err := rows.Scan(&n.ID, &n.Vector, &n.Birth)
		out = append(out, n)
		return err
	})
	return out, err
}
