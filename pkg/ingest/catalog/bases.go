package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/internal/dbq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// UUIDText matches ids as we write them.
var UUIDText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// BaseFrom reads BaseByID's columns. ErrBaseNotFound when there is no row.
func BaseFrom(row dbq.Scanner) (ingest.Base, error) {
	var b ingest.Base
	var created, updated taskstate.DBTime
	err := row.Scan(&b.ID, &b.UserID, &b.Name, &b.Model.Key, &b.Model.Dim, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return ingest.Base{}, ingest.ErrBaseNotFound
	}
	if err != nil {
		return ingest.Base{}, fmt.Errorf("read knowledge base: %w", err)
	}
	b.CreatedAt, b.UpdatedAt = created.Time, updated.Time
	return b, nil
}

// BaseByID finds a user's base by its id. ErrBaseNotFound.
func (a *Catalog) BaseByID(ctx context.Context, tx taskstate.Tx, id, user string) (ingest.Base, error) {
	return BaseFrom(tx.QueryRowContext(ctx, a.q.Get("BaseOfUser"), id, user))
}

// ReachableBase finds a base in the caller's scope. ErrBaseNotFound.
func (a *Catalog) ReachableBase(ctx context.Context, c ingest.Caller, idOrName string) (ingest.Base, error) {
	if idOrName == "" {
		idOrName = ingest.DefaultBase
	}
	if UUIDText.MatchString(idOrName) {
		b, err := dbq.ReadRow(ctx, a.d.Store, BaseFrom, a.q.Get("BaseReachable"), idOrName, dbq.Flag(c.Scope.All()), c.Scope.UserID)
		if !errors.Is(err, ingest.ErrBaseNotFound) {
			return b, err
		}
	}
	return dbq.ReadRow(ctx, a.d.Store, BaseFrom, a.q.Get("BaseNamed"), c.Scope.UserID, idOrName)
}
