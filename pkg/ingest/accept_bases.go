package ingest

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
)

// findBases finds the bases that the uploads go to, makes default ones, and keeps all of them from being deleted meanwhile.
func (r *acceptRun) findBases(ctx context.Context) error {
	if err := r.findDocumentBases(ctx); err != nil {
		return err
	}
	byID, byName := map[pair]Base{}, map[pair]Base{}
	ids, names := map[pair]bool{}, map[pair]bool{}
	for _, w := range r.works {
		if id := w.baseID(); id != "" && (w.state == acceptOpen || w.state == acceptAnswered) {
			ids[pair{id, w.c.Scope.UserID}] = true
		}
	}
	if err := r.readBases(ctx, "BasesOfUsers", ids, func(b Base) { byID[pair{b.ID, b.UserID}] = b }); err != nil {
		return err
	}
	r.each(acceptOpen, func(w *acceptWork) {
		if _, found := byID[pair{w.baseID(), w.c.Scope.UserID}]; !found && w.u.DocumentID == "" {
			names[pair{w.c.Scope.UserID, w.u.Base}] = true
		}
	})
	named := func(b Base) { byName[pair{b.UserID, b.Name}] = b }
	if err := r.readBases(ctx, "BasesNamed", names, named); err != nil {
		return err
	}
	if err := r.makeDefaults(ctx, names, byName); err != nil {
		return err
	}
	for _, w := range r.works {
		b, found := byID[pair{w.baseID(), w.c.Scope.UserID}]
		if !found && w.u.DocumentID == "" && w.state == acceptOpen {
			b, found = byName[pair{w.c.Scope.UserID, w.u.Base}]
		}
		switch {
		case found:
			w.base, w.got.baseName = b, b.Name
		case w.state != acceptOpen: // the base of a replay may be gone
		case w.u.Base == DefaultBase && w.u.DocumentID == "" && r.full != nil:
			w.refuse(r.full)
		case w.u.Base == DefaultBase && w.u.DocumentID == "":
			w.again()
		default:
			w.refuse(ErrBaseNotFound)
		}
	}
	return nil
}

// baseID is the base's id as far as the upload knows it: its document's or replay's, or what may be one by its look; empty: a name.
func (w *acceptWork) baseID() string {
	if w.base.ID != "" {
		return w.base.ID
	}
	if uuid.Validate(w.u.Base) == nil {
		return w.u.Base
	}
	return ""
}

// findDocumentBases finds the bases of documents that get a new version.
func (r *acceptRun) findDocumentBases(ctx context.Context) error {
	renewed := map[pair]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.DocumentID != "" {
			renewed[pair{w.u.DocumentID, w.c.Scope.UserID}] = true
		}
	})
	bases := map[pair]string{}
	err := r.pairs(ctx, "find the documents' bases", "DocumentsBase", renewed, func(rows *sql.Rows) error {
		var k pair
		var base string
		err := rows.Scan(&k.a, &k.b, &base)
		bases[k] = base
		return err
	})
	if err != nil {
		return err
	}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.DocumentID == "" {
			return
		}
		if w.base.ID = bases[pair{w.u.DocumentID, w.c.Scope.UserID}]; w.base.ID == "" {
			w.refuse(ErrDocumentNotFound)
		}
	})
	return nil
}

// readBases reads and locks bases.
func (r *acceptRun) readBases(ctx context.Context, name string, keys map[pair]bool, take func(Base)) error {
	return r.pairs(ctx, "find bases", name, keys, func(rows *sql.Rows) error {
		var b Base
		err := rows.Scan(&b.ID, &b.UserID, &b.Name)
		take(b)
		return err
	})
}

// makeDefaults makes the default bases that are missing; another process may do the same at once.
func (r *acceptRun) makeDefaults(ctx context.Context, names map[pair]bool, found map[pair]Base) error {
	missing := map[pair]bool{}
	for k := range names {
		if _, there := found[k]; !there && k.b == DefaultBase && r.full == nil {
			missing[k] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var params []any
	users := slices.SortedFunc(maps.Keys(missing), pair.compare)
	for _, k := range users {
		params = append(params, newID(), k.a, DefaultBase, DefaultBase, r.m.Now, r.m.Now, never())
	}
	if _, err := r.tx.ExecContext(ctx, r.app.q.Rows("BasesInsert", len(users)), params...); err != nil {
		return fmt.Errorf("make default bases: %w", err)
	}
	return r.readBases(ctx, "BasesNamed", missing, func(b Base) { found[pair{b.UserID, b.Name}] = b })
}
