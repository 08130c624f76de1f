package sweep

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// garbage is a row of vector_garbage.
type garbage struct {
	catalog.NamedRow
	base, document string
	marked         bool
	pass           int
}

// garbageSweep deletes vectors that no row names.
type garbageSweep struct{ *Sweeper }

// sweepGarbage decides on vectors that runs dropped, and deletes marked ones: at once, and once more ten minutes later.
func (a garbageSweep) sweepGarbage(ctx context.Context, s *Swept) error {
	due := func(now time.Time) ([]garbage, error) {
		return sqldb.ReadAll(ctx, a.d.Store, "look for due garbage", a.q.Get("GarbageDue"), []any{now, garbageMax}, func(rows *sql.Rows) (g garbage, err error) {
			var marked taskstate.DBTime
			err = rows.Scan(&g.Vector, &g.base, &g.document, &g.Birth, &marked, &g.pass)
			g.marked = !marked.IsZero()
			return g, err
		})
	}
	return turns(ctx, a.Sweeper, 0, due, func(due []garbage) error {
		if err := a.judgeGarbage(ctx, due); err != nil {
			return err
		}
		return a.deleteGarbage(ctx, due, s)
	})
}

// judgeGarbage decides on dropped vectors, document by document under its lock: mark, wait, or forget because a row names them again.
func (a garbageSweep) judgeGarbage(ctx context.Context, due []garbage) error {
	by := map[string][]catalog.NamedRow{}
	for _, g := range due {
		if !g.marked {
			by[g.document] = append(by[g.document], g.NamedRow)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(by)) {
		for page := range slices.Chunk(by[d], catalog.PageSize) {
			if err := a.judgePage(ctx, d, page); err != nil {
				return fmt.Errorf("decide on dropped vectors of document %s: %w", d, err)
			}
			crash.Point("gc.after_judge")
		}
	}
	return nil
}

// judgePage decides on dropped vectors of one document.
func (a garbageSweep) judgePage(ctx context.Context, document string, page []catalog.NamedRow) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if _, err := a.cat.LockDocuments(ctx, tx, []string{document}); err != nil {
			return err
		}
		free, open, err := marking(a).judgeVectors(ctx, tx, page)
		if err != nil {
			return err
		}
		judged := map[string]bool{}
		for _, n := range slices.Concat(free, open) {
			judged[n.Vector] = true
		}
		var held []string
		for _, n := range page {
			if !judged[n.Vector] {
				held = append(held, n.Vector)
			}
		}
		if err := a.cat.ExecList(ctx, tx, "GarbageMarked", vectorsOf(free), m.Now, m.Now); err != nil {
			return err
		}
		if err := a.cat.ExecList(ctx, tx, "GarbageLater", vectorsOf(open), m.Now.Add(stillOpen)); err != nil {
			return err
		}
		return a.cat.ExecList(ctx, tx, "GarbageForget", held)
	})
}

// deleteGarbage deletes marked vectors from the store, by base and pass, and notes it.
func (a garbageSweep) deleteGarbage(ctx context.Context, due []garbage, s *Swept) error {
	type group struct {
		base string
		pass int
	}
	by := map[group][]garbage{}
	for _, g := range due {
		if g.marked {
			k := group{g.base, g.pass}
			by[k] = append(by[k], g)
		}
	}
	var errs []error
	for k, ids := range by {
		for part := range slices.Chunk(ids, deleteMax) {
			if err := a.deleteVectors(ctx, k.base, k.pass, part); err != nil {
				errs = append(errs, err)
				continue
			}
			s.Vectors += len(part)
		}
	}
	return errors.Join(errs...)
}

// deleteVectors deletes ids of one base; what the store failed to delete waits a little, so that it stands in nobody's way.
// After the second deletion it is asked whether it holds any of them still: names go only when it does not.
func (a garbageSweep) deleteVectors(ctx context.Context, base string, pass int, part []garbage) error {
	ids := make([]string, len(part))
	for i, g := range part {
		ids[i] = g.Vector
	}
	storeErr := errors.Join(crash.Fault("gc.before_delete"), a.deleteFrom(ctx, base, pass, ids), crash.Fault("gc.after_delete"))
	err := a.noteDeleted(ctx, pass, part, ids, storeErr)
	if storeErr != nil {
		storeErr = fmt.Errorf("delete %d vectors of base %s: %w", len(ids), base, storeErr)
	}
	if err != nil {
		err = fmt.Errorf("note deleted vectors: %w", err)
	}
	return errors.Join(storeErr, err)
}

// deleteFrom deletes ids from all collections of a base.
func (a garbageSweep) deleteFrom(ctx context.Context, base string, pass int, ids []string) error {
	collections, err := a.cat.Collections(ctx, base)
	if err != nil {
		return err
	}
	for _, c := range collections {
		if err := a.d.Vectors.Delete(ctx, c, ids); err != nil {
			return err
		}
		if pass == 0 {
			continue
		}
		left, err := a.d.Vectors.Get(ctx, c, ids, false)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the vector store still holds %d of them", len(left))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noteDeleted notes what the store said of a pass: its ids wait for the second pass, are forgotten after it, or wait a little.
func (a garbageSweep) noteDeleted(ctx context.Context, pass int, part []garbage, ids []string, storeErr error) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		switch {
		case storeErr != nil:
			return a.cat.ExecList(ctx, tx, "GarbageLater", ids, m.Now.Add(storeRest))
		case pass == 0:
			return a.cat.ExecList(ctx, tx, "GarbageDeleted", ids, m.Now.Add(secondPass))
		}
		return a.garbageGone(ctx, tx, part)
	})
}

// garbageGone forgets ids that were deleted twice; the receipts of their documents count them, once.
func (a garbageSweep) garbageGone(ctx context.Context, tx taskstate.Tx, part []garbage) error {
	by := map[string][]string{}
	for _, g := range part {
		by[g.document] = append(by[g.document], g.Vector)
	}
	for _, document := range slices.Sorted(maps.Keys(by)) {
		ids := by[document]
		res, err := tx.ExecContext(ctx, a.q.List("GarbageGone", len(ids)), sqldb.Args(ids)...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, a.q.Get("DeletionVectors"), n, document); err != nil {
			return err
		}
	}
	return nil
}

// vectorsOf are the vector ids of rows.
func vectorsOf(rows []catalog.NamedRow) []string {
	out := make([]string, len(rows))
	for i, n := range rows {
		out[i] = n.Vector
	}
	return out
}
