// Package taskstore keeps tasks in MySQL, MariaDB, Postgres or SQLite: one implementation of taskstate.Database
// over pkg/sqldb, which has the transactions, the drivers and the migrations.
//
// Every write is one transaction (design D2, D9): lock the rows in id order, which also returns the database's
// clock and the epoch; let the caller's pure functions decide; write all changes with one UPDATE whose
// predicate names what each row must still say; run the caller's own SQL; write the log with one INSERT … SELECT
// from the rows; read the instant of the UPDATE; COMMIT. The number of statements does not depend on the size of the
// batch. A holder that ends its claims brings its copies of the rows: then nothing is locked or read before the UPDATE, unless
// its predicate does not hold. What a statement has to know of a column is one entry of a table (columns.go); render.go makes the statements of it.
//
// Waits of every kind (a pool's connection, a lock, the network) end with the caller's context.
// Deadlocks and lock waits are tried again. After a COMMIT without an answer the store first finds out what became
// of it: it locks the same rows, which waits for the old transaction's end, and looks for the call's id in the log.
package taskstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// ErrInvalid says that a caller's values cannot be stored; the error names the field.
var ErrInvalid = errors.New("invalid value")

// Store implements taskstate.Store over a SQL database. It is safe for concurrent use; Close ends it.
type Store struct {
	*sqldb.Database
	columns []column
	queries sqldb.Queries
	fresh   time.Duration // freshTime but in tests
	most    int           // searchBudget but in tests

	workers  *workers
	outbox   taskstate.OutboxFunc
	onEvents func()
}

var _ taskstate.Database = (*Store)(nil)

// withColumns makes a store of an open database; columns are those of the tables of tasks.
func withColumns(db *sqldb.Database, columns []column) *Store {
	return &Store{Database: db, workers: &workers{}, columns: columns, queries: loadQueries(db.Dialect(), columns), fresh: freshTime, most: searchBudget}
}

// mysql reports whether the database is MySQL or MariaDB.
func (s *Store) mysql() bool { return s.Dialect() == string(sqldb.MySQL) }

func (s *Store) postgres() bool { return s.Dialect() == string(sqldb.Postgres) }

func (s *Store) sqlite() bool { return s.Dialect() == string(sqldb.SQLite) }

// newCallID is a fresh name for one call.
func newCallID() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return b
}

// RenewEpoch starts a new history after a restore or an asynchronous failover (design D2): fences may repeat then,
// so that a holder from the lost history must no longer be believed. It sets a new random timeline and ends the lease of every process;
// tasks that were running are taken over, which counts a crash for each. Ordinary upgrades never call it.
// It returns the new epoch and how many leases it ended.
func (s *Store) RenewEpoch(ctx context.Context) (epoch, leases int64, err error) {
	epoch = sqldb.NewEpoch()
	err = s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		if _, err := tx.ExecContext(ctx, s.queries.Get("TimelineRenew"), epoch); err != nil {
			return fmt.Errorf("renew timeline: %w", err)
		}
		if _, err := tx.ExecContext(ctx, s.queries.Get("LeasesExpire")); err != nil {
			return fmt.Errorf("end leases: %w", err)
		}
		if _, err := tx.ExecContext(ctx, s.queries.Get("WakingNow")); err != nil {
			return fmt.Errorf("wake what runs: %w", err)
		}
		if err := tx.QueryRowContext(ctx, s.queries.Get("Running")).Scan(&leases); err != nil {
			return fmt.Errorf("count what runs: %w", err)
		}
		return nil
	})
	return epoch, leases, err
}

// deliver lets the outbox write what belongs to rows that were accepted.
func (b *submission) deliver(ctx context.Context, tx taskstate.Tx) (err error) {
	if b.store.outbox == nil {
		return nil
	}
	rows := make([]taskstate.Changed, len(b.out))
	for i, t := range b.out {
		rows[i].Task = t
	}
	b.events, err = b.store.outbox(ctx, tx, b.moment, rows)
	return err
}

// deliver lets the outbox write what belongs to changes that ask for it. It comes after the log: only then is it known
// what time the rows say.
func (b *batch) deliver(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) (err error) {
	if b.store.outbox == nil {
		return nil
	}
	var rows []taskstate.Changed
	for _, i := range b.changed {
		if c := b.decisions[i].Change; c.Deliver {
			after := b.tasks[i]
			apply(b.store.columns, &after, c, b.written)
			rows = append(rows, taskstate.Changed{Task: after, Change: c})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if b.events, err = b.store.outbox(ctx, tx, m, rows); err != nil {
		return &alsoError{err}
	}
	return nil
}

// rang tells of a commit that wrote n messages.
func (s *Store) rang(n int) {
	if n > 0 && s.onEvents != nil {
		s.onEvents()
	}
}
