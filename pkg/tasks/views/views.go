// Package views keeps filter expressions by name, for their user or, shared by an operator, for everybody.
package views

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed sql/*.sql
var statements embed.FS

// Limits of views.
const (
	MaxName  = 100 // characters
	MaxViews = 100 // of a user; a list is never more than these and the shared ones
)

// Errors.
var (
	ErrNotFound  = errors.New("saved view not found")
	ErrForbidden = errors.New("only operators share views")
	ErrTooMany   = fmt.Errorf("a user has at most %d saved views", MaxViews)
)

// View is a filter expression with a name.
type View struct {
	ID        string
	UserID    string // whose it is
	Name      string // unique among the views of its user
	Filter    string // an expression that filter.Parse takes
	Shared    bool   // everybody sees it
	CreatedAt time.Time
}

// Views keeps them in the table saved_view. It is safe for concurrent use.
type Views struct {
	db taskstate.Database
	q  sqldb.Queries
}

// New makes Views over a database.
func New(db taskstate.Database) *Views {
	return &Views{db: db, q: sqldb.MustLoad(statements, "sql", db.Dialect())}
}

// Save keeps a view of the caller's; one of the same name is replaced. Errors: ErrForbidden, ErrTooMany, taskstate.ErrUnavailable.
func (v *Views) Save(ctx context.Context, s taskstate.Scope, name, expression string, shared bool) (View, error) {
	if shared && !s.All() {
		return View{}, ErrForbidden
	}
	var out View
	err := v.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		var n int
		if err := tx.QueryRowContext(ctx, v.q.Get("Count"), s.UserID).Scan(&n); err != nil {
			return fmt.Errorf("count saved views: %w", err)
		}
		if _, err := tx.ExecContext(ctx, v.q.Get("Put"), tasks.NewID(), s.UserID, name, expression, sqldb.Flag(shared), m.Now); err != nil {
			return fmt.Errorf("save view: %w", err)
		}
		found, err := sqldb.Collect(ctx, tx, scan, v.q.Get("Named"), s.UserID, name)
		if err != nil || len(found) == 0 {
			return errors.Join(errors.New("read the saved view"), err)
		}
		if out = found[0]; n >= MaxViews && out.CreatedAt.Equal(m.Now) { // it is new
			return ErrTooMany
		}
		return nil
	})
	return out, err
}

// List returns the caller's views and the shared ones, by name.
func (v *Views) List(ctx context.Context, s taskstate.Scope) ([]View, error) {
	return sqldb.ReadAll(ctx, v.db, "list saved views", v.q.Get("List"), []any{s.UserID}, scan)
}

// Delete removes a view of the caller's, or for an operator anybody's. ErrNotFound.
func (v *Views) Delete(ctx context.Context, s taskstate.Scope, id string) error {
	if !sqldb.ASCII(id) {
		return ErrNotFound
	}
	of := sqldb.Part{}
	if !s.All() {
		of = v.q.Part("OfUser", s.UserID)
	}
	query := v.q.Bind("Delete", sqldb.Parts{"scope": of}, id)
	return v.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		done, err := tx.ExecContext(ctx, query.Text, query.Args...)
		if err != nil {
			return fmt.Errorf("delete saved view: %w", err)
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return errors.Join(ErrNotFound, err)
		}
		return nil
	})
}

// scan reads a row.
func scan(rows *sql.Rows) (v View, err error) {
	var shared int
	var created taskstate.DBTime
	err = rows.Scan(&v.ID, &v.UserID, &v.Name, &v.Filter, &shared, &created)
	v.Shared, v.CreatedAt = shared != 0, created.Time
	return v, err
}
