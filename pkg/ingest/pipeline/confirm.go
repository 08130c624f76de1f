package pipeline

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// confirmRows reads back what is complete, so that only vectors are written whose row was really committed (design D8).
func (w *Worker) confirmRows(ctx context.Context, tasks []*rowTask) {
	fresh := map[string]catalog.OpenVersion{}
	for _, t := range going(tasks) {
		switch {
		case !t.last():
		case t.w.stood:
			t.err = t.w.confirm(ctx)
		default:
			fresh[t.w.r.job.Task.ID] = catalog.OpenVersion{ID: t.w.r.work.version}
		}
	}
	if len(fresh) == 0 {
		return
	}
	counts, err := sqldb.Read(ctx, w.d.Store, func(ctx context.Context, db taskstate.Tx) (map[string]catalog.SegmentCount, error) {
		return w.cat.CountSegments(ctx, db, fresh)
	})
	for _, t := range going(tasks) {
		if _, asked := fresh[t.w.r.job.Task.ID]; !asked {
			continue
		}
		if err != nil {
			t.err = fmt.Errorf("read the version's rows back: %w", err)
			continue
		}
		n := len(t.w.plan.items)
		if c := counts[t.w.r.work.version]; c.N != n || n > 0 && (c.Lowest != 0 || c.Highest != n-1) {
			t.err = ingest.Transient(ingest.CodeInternal, "the rows of version %s are not those that were written: %d of %d", t.w.r.work.version, c.N, n)
		}
	}
}

// confirm reads all rows of a version back among which an earlier attempt has left some, and notes which vectors it has written.
func (w *rowWriter) confirm(ctx context.Context) error {
	drop, err := sqldb.Read(ctx, w.r.w.d.Store, w.ownRows)
	if err != nil {
		return fmt.Errorf("read the version's rows back: %w", err)
	}
	if i := slices.Index(w.have, false); i >= 0 || len(drop) > 0 {
		return ingest.Transient(ingest.CodeInternal, "the rows of version %s are not those that were written: segment %d, %d foreign ones", w.r.work.version, i, len(drop))
	}
	return nil
}

// ownRows fills have and stored from the version's rows and returns those that the plan does not hold.
func (w *rowWriter) ownRows(ctx context.Context, tx taskstate.Tx) (drop []catalog.NamedRow, err error) {
	items := w.plan.items
	w.have, w.stored = make([]bool, len(items)), make([]bool, len(items))
	err = sqldb.QueryRows(ctx, tx, "read the version's rows", w.r.w.q.Get("OwnRows"), []any{w.r.work.version}, func(rows *sql.Rows) error {
		var n catalog.NamedRow
		var index int
		var stored bool
		err := rows.Scan(&n.ID, &index, &n.Vector, &n.Birth, &stored)
		if err != nil || index >= len(items) || items[index].vector != n.Vector {
			drop = append(drop, n)
			return err
		}
		w.have[index], w.stored[index] = true, stored
		return nil
	})
	return drop, err
}
