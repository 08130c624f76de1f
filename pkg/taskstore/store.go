package taskstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// maxBatch is the most rows of one transaction; larger batches are cut into several, so that locks are held for a bounded
// time. Measured on an outbox, durable commits: 12,115 rows a second by 500, 4,104 by 20.
const maxBatch = 500

// ErrInvalid says that a caller's values cannot be stored; the error names the field.
var ErrInvalid = errors.New("invalid value")

// errUnavailable is the port's own, for short.
var errUnavailable = taskstate.ErrUnavailable

// Store implements taskstate.Store over a SQL database. It is safe for concurrent use; Close ends it.
type Store struct {
	backend *sqldb.Backend
	queries sqldb.Queries
	timeout time.Duration
	fresh   time.Duration // freshTime but in tests

	outbox   taskstate.OutboxFunc
	onEvents func()

	// watch, in tests, sees every statement before it runs (done false) and after (done true);
	// its error takes the place of the statement's own.
	watch func(query string, done bool) error
}

var _ taskstate.Store = (*Store)(nil)

// New makes a store of an open database; timeout bounds one attempt of one transaction, 0 means 30 s.
func New(b *sqldb.Backend, timeout time.Duration) *Store {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return &Store{backend: b, queries: loadQueries(b.Dialect), timeout: timeout, fresh: freshTime}
}

// Close closes the connections.
func (s *Store) Close() error { return s.backend.Close() }

// Dialect is mysql, postgres or sqlite.
func (s *Store) Dialect() string { return string(s.backend.Dialect) }

// DB is a pool for migrations and tests.
func (s *Store) DB() *sql.DB { return s.backend.DB }

// Stats returns how the pool of connections is used, for metrics.
func (s *Store) Stats() sql.DBStats { return s.backend.Tx.Stats() }

// Read implements taskstate.Store.
func (s *Store) Read(ctx context.Context, f taskstate.ReadFunc) error {
	return s.read(ctx, "", func(ctx context.Context, tx *session) error { return f(ctx, tx) })
}

// Reader reads outside a transaction, for tools and tests: nothing bounds, repeats or names what fails, as Read does.
func (s *Store) Reader() taskstate.Tx { return &session{store: s, on: s.backend.Reads} }

// Moment returns the database's clock and timeline.
func (s *Store) Moment(ctx context.Context) (taskstate.DBClock, error) {
	var m taskstate.DBClock
	err := s.read(ctx, "read the clock", func(ctx context.Context, tx *session) error {
		var err error
		m, err = s.moment(ctx, tx)
		return err
	})
	return m, err
}

// moment reads clock and timeline.
func (s *Store) moment(ctx context.Context, tx *session) (taskstate.DBClock, error) {
	var m taskstate.DBClock
	var now taskstate.DBTime
	err := tx.QueryRowContext(ctx, s.queries.Get("Moment")).Scan(&now, &m.Epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return m, errors.New("the database has no timeline: run the migrations")
	}
	m.Now = now.Time
	return m, err
}

// Ping returns nil when the database can be written.
func (s *Store) Ping(ctx context.Context) error {
	tx := &session{store: s, on: s.backend.DB}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if _, err := tx.ExecContext(ctx, s.queries.Get("Ping")); err != nil {
		s.suspect(err)
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return nil
}

// Durability asks the database what it keeps of answered commits; one that is refused for it answers too.
// Errors: taskstate.ErrUnavailable with the cause.
func (s *Store) Durability(ctx context.Context) (sqldb.Durability, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	d, err := s.backend.Durability(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return d, nil
}

// newCallID is a fresh name for one call.
func newCallID() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return b
}
