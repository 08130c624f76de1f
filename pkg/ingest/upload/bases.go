package upload

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
)

// findBases finds the bases that the uploads go to, makes default ones, and keeps all of them from being deleted meanwhile.
func (r *acceptRun) findBases(ctx context.Context) error {
	if err := r.findDocumentBases(ctx); err != nil {
		return err
	}
	byID, byName := map[sqldb.Pair]ingest.Base{}, map[sqldb.Pair]ingest.Base{}
	ids, names := map[sqldb.Pair]bool{}, map[sqldb.Pair]bool{}
	for _, w := range r.works {
		if id := w.baseID(); id != "" && (w.state == acceptOpen || w.state == acceptAnswered) {
			ids[sqldb.Pair{id, w.c.Scope.UserID}] = true
		}
	}
	if err := r.readBases(ctx, "BasesOfUsers", ids, func(b ingest.Base) { byID[sqldb.Pair{b.ID, b.UserID}] = b }); err != nil {
		return err
	}
	r.each(acceptOpen, func(w *acceptWork) {
		if _, found := byID[sqldb.Pair{w.baseID(), w.c.Scope.UserID}]; !found && w.u.DocumentID == "" {
			names[sqldb.Pair{w.c.Scope.UserID, w.u.Base}] = true
		}
	})
	named := func(b ingest.Base) { byName[sqldb.Pair{b.UserID, b.Name}] = b }
	if err := r.readBases(ctx, "BasesNamed", names, named); err != nil {
		return err
	}
	if err := r.makeDefaults(ctx, names, byName); err != nil {
		return err
	}
	for _, w := range r.works {
		b, found := byID[sqldb.Pair{w.baseID(), w.c.Scope.UserID}]
		if !found && w.u.DocumentID == "" && w.state == acceptOpen {
			b, found = byName[sqldb.Pair{w.c.Scope.UserID, w.u.Base}]
		}
		switch {
		case found:
			w.base, w.got.baseName = b, b.Name
		case w.state != acceptOpen: // the base of a replay may be gone
		case w.u.Base == ingest.DefaultBase && w.u.DocumentID == "" && r.full != nil:
			w.refuse(r.full)
		case w.u.Base == ingest.DefaultBase && w.u.DocumentID == "":
			w.again()
		default:
			w.refuse(ingest.ErrBaseNotFound)
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
	renewed := map[sqldb.Pair]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.u.DocumentID != "" {
			renewed[sqldb.Pair{w.u.DocumentID, w.c.Scope.UserID}] = true
		}
	})
	bases := map[sqldb.Pair]string{}
	err := r.pairs(ctx, "find the documents' bases", "DocumentsBase", renewed, func(rows *sql.Rows) error {
		var k sqldb.Pair
		var base string
		err := rows.Scan(&k[0], &k[1], &base)
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
		if w.base.ID = bases[sqldb.Pair{w.u.DocumentID, w.c.Scope.UserID}]; w.base.ID == "" {
			w.refuse(ingest.ErrDocumentNotFound)
		}
	})
	return nil
}

// readBases reads and locks bases.
func (r *acceptRun) readBases(ctx context.Context, name string, keys map[sqldb.Pair]bool, take func(ingest.Base)) error {
	return r.pairs(ctx, "find bases", name, keys, func(rows *sql.Rows) error {
		var b ingest.Base
		err := rows.Scan(&b.ID, &b.UserID, &b.Name)
		take(b)
		return err
	})
}

// makeDefaults makes the default bases that are missing; another process may do the same at once.
func (r *acceptRun) makeDefaults(ctx context.Context, names map[sqldb.Pair]bool, found map[sqldb.Pair]ingest.Base) error {
	missing := map[sqldb.Pair]bool{}
	for k := range names {
		if _, there := found[k]; !there && k[1] == ingest.DefaultBase && r.full == nil {
			missing[k] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var params []any
	users := slices.SortedFunc(maps.Keys(missing), sqldb.Pair.Compare)
	for _, k := range users {
		params = append(params, ingest.NewID(), k[0], ingest.DefaultBase, ingest.DefaultBase, r.m.Now, r.m.Now, catalog.Never())
	}
	if _, err := r.tx.ExecContext(ctx, r.app.q.Rows("BasesInsert", len(users)), params...); err != nil {
		return fmt.Errorf("make default bases: %w", err)
	}
	return r.readBases(ctx, "BasesNamed", missing, func(b ingest.Base) { found[sqldb.Pair{b.UserID, b.Name}] = b })
}
