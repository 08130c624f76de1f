package catalog

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// retiredRest is how long a collection stays after its base has left it: searches that began before look there.
const retiredRest = 10 * time.Minute

// UnmovedVersion is a visible version whose vectors do not all lie in a collection.
type UnmovedVersion struct{ Document, Version string }

// Shadow returns the collection in which the vectors of a base are made anew with a model. It makes one unless there is one of that
// model; one of another model is given up. ErrBaseNotFound.
func (a *Catalog) Shadow(ctx context.Context, base, model string) (shadow string, err error) {
	id := ingest.NewID()
	err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if _, err := a.LockBase(ctx, tx, base); err != nil {
			return err
		}
		var was, of string
		if err := tx.QueryRowContext(ctx, a.q.Get("BaseShadow"), base).Scan(&was, &of); err != nil {
			return fmt.Errorf("read the base's shadow: %w", err)
		}
		if was = strings.TrimSpace(was); was != "" && of == model {
			shadow = was
			return nil
		}
		if was != "" {
			if err := a.retire(ctx, tx, m, base, was); err != nil {
				return err
			}
		}
		shadow = id
		_, err := tx.ExecContext(ctx, a.q.Get("BaseShadowSet"), id, model, m.Now, base)
		return err
	})
	return shadow, err
}

// retire lets the sweeper drop a collection.
func (a *Catalog) retire(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, base, collection string) error {
	_, err := tx.ExecContext(ctx, a.q.Get("CollectionRetire"), collection, base, m.Now.Add(retiredRest))
	return err
}

// ShadowHas notes the dimension of the vectors in a shadow, once.
func (a *Catalog) ShadowHas(ctx context.Context, base, shadow string, dim int) error {
	_, err := a.changeBase(ctx, "BaseShadowDim", func(taskstate.DBClock) []any { return []any{dim, base, shadow} })
	return err
}

// Close lets no version of a base become visible for some time. False when the shadow is not the base's any more.
func (a *Catalog) Close(ctx context.Context, base, shadow string, d time.Duration) (bool, error) {
	return a.changeBase(ctx, "BaseClosing", func(m taskstate.DBClock) []any { return []any{m.Now.Add(d), base, shadow} })
}

// StaysClosed gives Close's time anew. False when it has run out, or the shadow is not the base's any more.
func (a *Catalog) StaysClosed(ctx context.Context, base, shadow string, d time.Duration) (bool, error) {
	return a.changeBase(ctx, "BaseStaysClosed", func(m taskstate.DBClock) []any { return []any{m.Now.Add(d), base, shadow, m.Now} })
}

// changeBase runs a statement over one base and reports whether it changed it.
func (a *Catalog) changeBase(ctx context.Context, statement string, args func(m taskstate.DBClock) []any) (changed bool, err error) {
	err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) (err error) {
		changed, err = a.changed(ctx, tx, statement, args(m)...)
		return err
	})
	return changed, err
}

// changed runs a statement and reports whether it changed a row.
func (a *Catalog) changed(ctx context.Context, tx taskstate.Tx, statement string, args ...any) (bool, error) {
	res, err := tx.ExecContext(ctx, a.q.Get(statement), args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// Moved makes a shadow the base's collection, and retires the one before. False when the base is not closed any more, or the shadow
// not its own. The caller has seen to it that no visible version lacks vectors there since the base was closed.
func (a *Catalog) Moved(ctx context.Context, base, shadow string) (moved bool, err error) {
	err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		moved = false
		b, err := a.LockBase(ctx, tx, base)
		if err != nil {
			return err
		}
		if moved, err = a.changed(ctx, tx, "BaseMoved", m.Now, base, shadow, m.Now); err != nil || !moved {
			return err
		}
		return a.retire(ctx, tx, m, base, b.Collection)
	})
	return moved, err
}

// Unmoved lists versions that are not in a collection, by document behind an id.
func (a *Catalog) Unmoved(ctx context.Context, base, collection, after string, limit int) ([]UnmovedVersion, error) {
	return sqldb.ReadAll(ctx, a.d.Store, "list versions to be moved", a.q.Get("Unmoved"), []any{base, after, collection, limit}, func(rows *sql.Rows) (v UnmovedVersion, err error) {
		err = rows.Scan(&v.Document, &v.Version)
		v.Document, v.Version = strings.TrimSpace(v.Document), strings.TrimSpace(v.Version)
		return v, err
	})
}

// CountUnmoved counts them. collection "" is that of no move: it counts all visible versions.
func (a *Catalog) CountUnmoved(ctx context.Context, base, collection string) (n int64, err error) {
	return a.ofUnmoved(ctx, "UnmovedCount", base, collection)
}

// TokensUnmoved counts the tokens of their segments.
func (a *Catalog) TokensUnmoved(ctx context.Context, base, collection string) (int64, error) {
	return a.ofUnmoved(ctx, "UnmovedTokens", base, collection)
}

func (a *Catalog) ofUnmoved(ctx context.Context, statement, base, collection string) (int64, error) {
	return sqldb.ReadRow(ctx, a.d.Store, func(row sqldb.Scanner) (n int64, err error) { return n, row.Scan(&n) },
		a.q.Get(statement), base, cmp.Or(collection, "-"))
}

// StillMoving are those of versions that are visible, in a base whose shadow is that one.
func (a *Catalog) StillMoving(ctx context.Context, shadow string, versions []string) (map[string]bool, error) {
	found, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.List("VersionsMoving", len(versions)), append([]any{shadow}, sqldb.Args(versions)...)...)
	out := make(map[string]bool, len(found))
	for _, id := range found {
		out[strings.TrimSpace(id)] = true
	}
	return out, err
}

// NoteMoved notes that all vectors of versions lie in a collection; one that is not visible any more is left alone.
func (a *Catalog) NoteMoved(ctx context.Context, collection string, versions []string) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		return a.ExecList(ctx, tx, "VersionsMoved", versions, collection)
	})
}

// WaitForDocuments waits for all transactions that have locked documents of a base, page by page, and calls each after every page.
func (a *Catalog) WaitForDocuments(ctx context.Context, base string, each func() error) error {
	for after := ""; ; {
		ids, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("DocumentsAfter"), base, after, PageSize)
		if err != nil || len(ids) == 0 {
			return err
		}
		after = ids[len(ids)-1]
		err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := a.LockDocuments(ctx, tx, ids)
			return err
		})
		if err != nil {
			return err
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// Collections are those in which vectors of a base may lie.
func (a *Catalog) Collections(ctx context.Context, base string) ([]string, error) {
	found, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("BaseCollections"), base, base, base)
	for i := range found {
		found[i] = strings.TrimSpace(found[i])
	}
	return found, err
}
