// Package sqldb is the one home of SQL machinery: statements from files, open databases, and what differs
// between their drivers. The drivers live in the folders below it.
package sqldb

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed queries/*.sql
var queryFiles embed.FS

// DB is what a package with statements of its own needs of a database; *Database is one.
type DB interface {
	// Transact runs f in a transaction of its own, again after a deadlock. After a COMMIT without an answer resolve tells
	// whether it was done (see Call); nil: taskstate.ErrOutcomeUnknown.
	Transact(ctx context.Context, f taskstate.ReadFunc, resolve func(ctx context.Context, tx taskstate.Tx) (bool, error)) error
	// InTx runs f in a transaction that knows the time.
	InTx(ctx context.Context, f taskstate.TxFunc) error
	// Read runs f outside a transaction.
	Read(ctx context.Context, f taskstate.ReadFunc) error
	// Dialect is mysql, postgres or sqlite.
	Dialect() string
}

// Database is an open database. It is safe for concurrent use; Close ends it.
type Database struct {
	backend *Backend
	queries Queries
	timeout time.Duration

	// Watch, in tests, sees every statement before it runs (done false) and after (done true);
	// its error takes the place of the statement's own.
	Watch func(query string, done bool) error
}

var _ DB = (*Database)(nil)

// New makes a Database of what a driver opened; timeout bounds one attempt of one transaction, 0 means 30 s.
func New(b *Backend, timeout time.Duration) *Database {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return &Database{backend: b, queries: MustLoad(queryFiles, "queries", string(b.Dialect)), timeout: timeout}
}

// Close closes the connections.
func (d *Database) Close() error { return d.backend.Close() }

// Dialect is mysql, postgres or sqlite.
func (d *Database) Dialect() string { return string(d.dialect()) }

func (d *Database) dialect() Dialect { return d.backend.Dialect }

// DB is a pool for migrations and tests.
func (d *Database) DB() *sql.DB { return d.backend.DB }

// TxPool is the pool of transactions, for tests.
func (d *Database) TxPool() *sql.DB { return d.backend.Tx }

// Stats returns how the pool of connections is used, for metrics.
func (d *Database) Stats() sql.DBStats { return d.backend.Tx.Stats() }

// Reader reads outside a transaction, for tools and tests: nothing bounds, repeats or names what fails, as Read does.
func (d *Database) Reader() taskstate.Tx { return &session{db: d, on: d.backend.Reads} }

// Moment returns the database's clock and epoch.
func (d *Database) Moment(ctx context.Context) (taskstate.DBClock, error) {
	m, err := Read(ctx, d, d.ClockIn)
	return m, wrap("read the clock", err)
}

// ClockIn reads clock and epoch in an open transaction.
func (d *Database) ClockIn(ctx context.Context, tx taskstate.Tx) (taskstate.DBClock, error) {
	var m taskstate.DBClock
	var now taskstate.DBTime
	err := tx.QueryRowContext(ctx, d.queries.Get("Moment")).Scan(&now, &m.Epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return m, errors.New("the database has no timeline: run the migrations")
	}
	m.Now = now.Time
	return m, err
}

// Ping returns nil when the database can be written.
func (d *Database) Ping(ctx context.Context) error {
	tx := &session{db: d, on: d.backend.DB}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if _, err := tx.ExecContext(ctx, d.queries.Get("Ping")); err != nil {
		d.suspect(err)
		return fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err)
	}
	return nil
}
