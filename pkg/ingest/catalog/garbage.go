package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// PageSize is how many rows one statement's list has at most.
const PageSize = 500

// NamedRow is a segment row with the vector that it names.
type NamedRow struct {
	ID            int64
	Vector, Birth string
}

// DropRows removes rows of a version and names their vectors as garbage, in the caller's transaction.
func (a *Catalog) DropRows(ctx context.Context, tx taskstate.Tx, base, document string, drop []NamedRow, now time.Time) error {
	for len(drop) > 0 {
		page := drop[:min(len(drop), PageSize)]
		drop = drop[len(page):]
		params := make([]any, 0, len(page)*5)
		ids := make([]any, 0, len(page))
		for _, n := range page {
			params = append(params, n.Vector, base, document, n.Birth, now)
			ids = append(ids, n.ID)
		}
		if _, err := tx.ExecContext(ctx, a.q.Rows("GarbageName", len(page)), params...); err != nil {
			return fmt.Errorf("name vectors as garbage: %w", err)
		}
		if _, err := tx.ExecContext(ctx, a.q.List("RowsDelete", len(page)), ids...); err != nil {
			return fmt.Errorf("remove segments: %w", err)
		}
	}
	return nil
}
