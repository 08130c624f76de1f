package catalog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// uuidText matches ids as we write them.
var uuidText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// BaseFrom reads BaseByID's columns. ErrBaseNotFound when there is no row.
func BaseFrom(row sqldb.Scanner) (ingest.Base, error) {
	var b ingest.Base
	var created, updated taskstate.DBTime
	err := row.Scan(&b.ID, &b.UserID, &b.Name, &b.Model.Key, &b.Model.Dim, &b.Collection, &b.SearchMode, &b.Chunking, &b.MetadataSchema, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return ingest.Base{}, ingest.ErrBaseNotFound
	}
	if err != nil {
		return ingest.Base{}, fmt.Errorf("read knowledge base: %w", err)
	}
	b.CreatedAt, b.UpdatedAt = created.Time, updated.Time
	b.Collection = cmp.Or(strings.TrimSpace(b.Collection), b.ID)
	return b, nil
}

// BaseByID finds a user's base by its id. ErrBaseNotFound.
func (a *Catalog) BaseByID(ctx context.Context, tx taskstate.Tx, id, user string) (ingest.Base, error) {
	return BaseFrom(tx.QueryRowContext(ctx, a.q.Get("BaseOfUser"), id, user))
}

// Base finds a live base in the caller's reach by its id, or by his own name for it; empty means ingest.DefaultBase.
// ErrBaseNotFound.
func (a *Catalog) Base(ctx context.Context, c ingest.Caller, idOrName string) (ingest.Base, error) {
	if idOrName == "" {
		idOrName = ingest.DefaultBase
	}
	if uuidText.MatchString(idOrName) {
		b, err := sqldb.ReadRow(ctx, a.d.Store, BaseFrom, a.q.Get("BaseReachable"), idOrName, sqldb.Flag(c.Scope.All()), c.Scope.UserID)
		if !errors.Is(err, ingest.ErrBaseNotFound) {
			return b, err
		}
	}
	return a.named(ctx, c, idOrName)
}

// named finds the caller's own live base of that name.
func (a *Catalog) named(ctx context.Context, c ingest.Caller, name string) (ingest.Base, error) {
	return sqldb.ReadRow(ctx, a.d.Store, BaseFrom, a.q.Get("BaseNamed"), c.Scope.UserID, name)
}

// CreateBase makes a base. Errors: ErrBaseExists when its user has a live one of that name, *ingest.TextError for a setting.
func (a *Catalog) CreateBase(ctx context.Context, c ingest.Caller, name string, s ingest.BaseSettings) (ingest.Base, error) {
	b := ingest.Base{SearchMode: ingest.SearchAuto}
	if err := a.set(&b, s); err != nil {
		return ingest.Base{}, err
	}
	if _, err := a.named(ctx, c, name); err == nil {
		return ingest.Base{}, ingest.ErrBaseExists
	} else if !errors.Is(err, ingest.ErrBaseNotFound) {
		return ingest.Base{}, err
	}
	id := ingest.NewID()
	err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, a.q.Rows("BasesInsert", 1), id, c.Scope.UserID, name, name, b.SearchMode, b.Chunking.Column(), b.MetadataSchema.Column(), m.Now, m.Now, Never())
		return err
	})
	made, readErr := a.named(ctx, c, name)
	switch {
	case readErr == nil && made.ID == id:
		return made, nil // also after an unknown commit
	case readErr == nil:
		return ingest.Base{}, ingest.ErrBaseExists // somebody else was first
	case err != nil:
		return ingest.Base{}, fmt.Errorf("create knowledge base: %w", err)
	}
	return ingest.Base{}, readErr
}

// set takes settings over into a base. *ingest.TextError.
func (a *Catalog) set(b *ingest.Base, s ingest.BaseSettings) error {
	b.SearchMode = cmp.Or(s.SearchMode, b.SearchMode)
	if s.MetadataSchema != nil {
		b.MetadataSchema = s.MetadataSchema.OrNone()
	}
	if s.Chunking != nil {
		b.Chunking = *s.Chunking
		return b.Chunking.Fits("chunking.", a.d.MaxTokens)
	}
	return nil
}

// ChangeBase changes settings of a base and returns the base afterwards.
// Errors: ErrBaseNotFound, the caller's guard's, *ingest.TextError, taskstate.ErrUnavailable.
func (a *Catalog) ChangeBase(ctx context.Context, c ingest.Caller, idOrName string, s ingest.BaseSettings) (ingest.Base, error) {
	b, err := a.Base(ctx, c, idOrName)
	if err != nil {
		return ingest.Base{}, err
	}
	err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if b, err = a.LockBase(ctx, tx, b.ID); err != nil {
			return err
		}
		if err := c.Allows(b); err != nil {
			return err
		}
		if err := a.set(&b, s); err != nil {
			return err
		}
		b.UpdatedAt = m.Now
		if _, err := tx.ExecContext(ctx, a.q.Get("BaseSet"), b.SearchMode, b.Chunking.Column(), b.MetadataSchema.Column(), m.Now, b.ID); err != nil {
			return err
		}
		return c.WriteNote(ctx, tx, m)
	})
	if err != nil {
		return ingest.Base{}, fmt.Errorf("change knowledge base %s: %w", idOrName, err)
	}
	return b, nil
}

// LockBase locks a live base for a change and reads it. ErrBaseNotFound.
func (a *Catalog) LockBase(ctx context.Context, tx taskstate.Tx, id string) (ingest.Base, error) {
	if _, err := sqldb.Texts(ctx, tx, a.q.Get("BaseLock"), id); err != nil {
		return ingest.Base{}, err
	}
	return BaseFrom(tx.QueryRowContext(ctx, a.q.Get("BaseReachable"), id, sqldb.Flag(true), ""))
}
