package ingest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
)

// garbage is a row of vector_garbage.
type garbage struct {
	namedRow
	base, document string
	marked         bool
	pass           int
}

// sweepGarbage decides on vectors that runs dropped, and deletes marked ones: at once, and once more ten minutes later.
func (a *App) sweepGarbage(ctx context.Context, s *Swept) error {
	for range sweepTurns {
		now, err := a.moment(ctx)
		if err != nil {
			return err
		}
		due, err := a.dueGarbage(ctx, now)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := a.judgeGarbage(ctx, due); err != nil {
			return err
		}
		if err := a.deleteGarbage(ctx, due, s); err != nil {
			return err
		}
	}
	return nil
}

// dueGarbage reads a page of garbage whose time has come.
func (a *App) dueGarbage(ctx context.Context, now time.Time) ([]garbage, error) {
	return collect(ctx, a.d.Store, "look for due garbage", a.q.Get("GarbageDue"), []any{now, garbageMax}, func(rows *sql.Rows) (garbage, error) {
		var g garbage
		var marked taskstate.DBTime
		err := rows.Scan(&g.vector, &g.base, &g.document, &g.birth, &marked, &g.pass)
		g.marked = !marked.IsZero()
		return g, err
	})
}

// judgeGarbage decides on dropped vectors, document by document under its lock: mark, wait, or forget because a row names them again.
func (a *App) judgeGarbage(ctx context.Context, due []garbage) error {
	by := map[string][]namedRow{}
	for _, g := range due {
		if !g.marked {
			by[g.document] = append(by[g.document], g.namedRow)
		}
	}
	documents := make([]string, 0, len(by))
	for d := range by {
		documents = append(documents, d)
	}
	slices.Sort(documents)
	for _, d := range documents {
		for from := 0; from < len(by[d]); from += pageSize {
			page := by[d][from:min(len(by[d]), from+pageSize)]
			if err := a.judgePage(ctx, d, page); err != nil {
				return fmt.Errorf("decide on dropped vectors of document %s: %w", d, err)
			}
			crash.Point("gc.after_judge")
		}
	}
	return nil
}

// judgePage decides on dropped vectors of one document.
func (a *App) judgePage(ctx context.Context, document string, page []namedRow) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if _, err := a.lockDocuments(ctx, tx, []string{document}); err != nil {
			return err
		}
		free, open, err := a.judgeVectors(ctx, tx, page)
		if err != nil {
			return err
		}
		judged := map[string]bool{}
		for _, n := range slices.Concat(free, open) {
			judged[n.vector] = true
		}
		var held []string
		for _, n := range page {
			if !judged[n.vector] {
				held = append(held, n.vector)
			}
		}
		if err := a.execList(ctx, tx, "GarbageMarked", vectorsOf(free), m.Now, m.Now); err != nil {
			return err
		}
		if err := a.execList(ctx, tx, "GarbageLater", vectorsOf(open), m.Now.Add(stillOpen)); err != nil {
			return err
		}
		return a.execList(ctx, tx, "GarbageForget", held)
	})
}

// deleteGarbage deletes marked vectors from the store, by base and pass, and notes it.
func (a *App) deleteGarbage(ctx context.Context, due []garbage, s *Swept) error {
	type group struct {
		base string
		pass int
	}
	by := map[group][]string{}
	for _, g := range due {
		if g.marked {
			k := group{g.base, g.pass}
			by[k] = append(by[k], g.vector)
		}
	}
	var errs []error
	for k, ids := range by {
		for from := 0; from < len(ids); from += deleteMax {
			part := ids[from:min(len(ids), from+deleteMax)]
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
func (a *App) deleteVectors(ctx context.Context, base string, pass int, ids []string) error {
	storeErr := errors.Join(crash.Fault("gc.before_delete"), a.d.Vectors.Delete(ctx, base, ids), crash.Fault("gc.after_delete"))
	err := a.noteDeleted(ctx, pass, ids, storeErr)
	if storeErr != nil {
		storeErr = fmt.Errorf("delete %d vectors of base %s: %w", len(ids), base, storeErr)
	}
	if err != nil {
		err = fmt.Errorf("note deleted vectors: %w", err)
	}
	return errors.Join(storeErr, err)
}

// noteDeleted notes what the store said of a pass: its ids wait for the second pass, are forgotten after it, or wait a little.
func (a *App) noteDeleted(ctx context.Context, pass int, ids []string, storeErr error) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		switch {
		case storeErr != nil:
			return a.execList(ctx, tx, "GarbageLater", ids, m.Now.Add(storeRest))
		case pass == 0:
			return a.execList(ctx, tx, "GarbageDeleted", ids, m.Now.Add(secondPass))
		}
		return a.execList(ctx, tx, "GarbageGone", ids)
	})
}

// execList runs a statement whose list comes last; an empty list does nothing.
func (a *App) execList(ctx context.Context, tx taskstate.Tx, name string, list []string, params ...any) error {
	if len(list) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, a.q.List(name, len(list)), append(params, args(list)...)...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// vectorsOf are the vector ids of rows.
func vectorsOf(rows []namedRow) []string {
	out := make([]string, len(rows))
	for i, n := range rows {
		out[i] = n.vector
	}
	return out
}
