// Package catalog holds documents, versions and knowledge bases: their rows, the order in which they are locked, and what is
// written beside a change of a task's status.
package catalog

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

//go:embed sql/*.sql
var statements embed.FS

// Catalog is the tables of documents, versions and bases, and what writes of several rooms have in common.
// It is safe for concurrent use.
type Catalog struct {
	d       ingest.Deps
	q       sqldb.Queries
	trouble *telemetry.Repeated // one line a kind and minute
}

// New loads the statements of the store's dialect.
func New(d ingest.Deps) *Catalog {
	q := sqldb.MustLoad(statements, "sql", d.Store.Dialect())
	return &Catalog{d: d, q: q, trouble: telemetry.NewRepeated(d.Log, time.Minute, d.Clock)}
}

// Queries are the statements of all rooms that write.
func (a *Catalog) Queries() sqldb.Queries { return a.q }

// Logged logs an error unless the process is stopping; the next sweep tries again.
func (a *Catalog) Logged(ctx context.Context, what string, err error) {
	switch {
	case err == nil:
		a.trouble.Reset(what)
	case ctx.Err() == nil:
		a.trouble.Log(ctx, slog.LevelWarn, what, "ingest: sweep", slog.String("what", what), slog.String("error", a.d.Redact(err.Error())))
	}
}

// Moment is the database's clock.
func (a *Catalog) Moment(ctx context.Context) (time.Time, error) {
	m, err := a.d.Store.Moment(ctx)
	return m.Now, err
}

// ExecList runs a statement whose list comes last; an empty list does nothing.
func (a *Catalog) ExecList(ctx context.Context, tx taskstate.Tx, name string, list []string, params ...any) error {
	if len(list) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, a.q.List(name, len(list)), append(params, sqldb.Args(list)...)...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// List runs a statement with one list and scans every row; an empty list finds nothing.
func (a *Catalog) List(ctx context.Context, tx taskstate.Tx, name string, list []string, scan func(*sql.Rows) error) error {
	if len(list) == 0 {
		return nil
	}
	return sqldb.QueryRows(ctx, tx, name, a.q.List(name, len(list)), sqldb.Args(list), scan)
}

// Column is the only column of List's rows.
func (a *Catalog) Column(ctx context.Context, tx taskstate.Tx, name string, list []string) (out []string, err error) {
	err = a.List(ctx, tx, name, list, func(rows *sql.Rows) error {
		var s string
		err := rows.Scan(&s)
		out = append(out, s)
		return err
	})
	return out, err
}

// Set is Column as a set.
func (a *Catalog) Set(ctx context.Context, tx taskstate.Tx, name string, list []string) (map[string]bool, error) {
	found, err := a.Column(ctx, tx, name, list)
	out := make(map[string]bool, len(found))
	for _, id := range found {
		out[id] = true
	}
	return out, err
}
