package sqldb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/migrations"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// migrateLockTime bounds the wait for another runner.
	migrateLockTime = time.Minute
	// migrateUnlockTime bounds the return of the runner's lock after its context is over.
	migrateUnlockTime = 5 * time.Second
)

// Errors of migrations.
var (
	// ErrChecksum: an applied migration is not the file that this program has.
	ErrChecksum = errors.New("an applied migration differs from the file of this program")
	// ErrSchemaBehind: migrations are missing; run them.
	ErrSchemaBehind = errors.New("the schema is behind: run `millweir migrate up`")
	// ErrSchemaAhead: the database has a migration that this program does not know.
	ErrSchemaAhead = errors.New("the schema is ahead of this program")
	// ErrNoCollation: the server can only compare text with padding.
	ErrNoCollation = errors.New("the server has neither utf8mb4_nopad_bin nor utf8mb4_0900_bin, and without one of them a user id " +
		"with a space at its end is another user's: use MariaDB 10.6 or later, or MySQL 8.0.17 or later")
	// errMigrateBusy: another runner holds the lock.
	errMigrateBusy = errors.New("another migration is running")
)

// MigrationState is one known migration and when it was applied.
type MigrationState struct {
	Version   int
	Name      string
	AppliedAt time.Time // zero: not yet
}

// Migrate brings the schema up to date and makes the epoch when there is none; it returns what it applied.
// It may run again and from several processes at once: a lock lets one runner work at a time.
// On Postgres and SQLite a migration is applied as a whole or not at all; on MySQL, whose DDL commits by itself, a run
// that broke off is repeated.
// Errors: ErrChecksum, ErrSchemaAhead, another runner that does not end within a minute, the database's own.
func (d *Database) Migrate(ctx context.Context) ([]MigrationState, error) {
	var out []MigrationState
	err := d.migrating(ctx, func(m *migrator) error {
		for _, k := range m.known[len(m.applied):] {
			if err := m.step(ctx, k.Up, "MigrationDone", k.Version, k.Name, k.Checksum); err != nil {
				return fmt.Errorf("migration %03d_%s: %w", k.Version, k.Name, err)
			}
			crash.Point("migrate.after_step")
			now, err := m.read(ctx)
			if err != nil {
				return err
			}
			out = append(out, MigrationState{Version: k.Version, Name: k.Name, AppliedAt: now[len(now)-1].at})
		}
		_, err := m.conn.ExecContext(ctx, Rebind(m.dialect(), m.queries.Get("TimelineSet")), NewEpoch())
		return wrap("make the timeline", err)
	})
	return out, err
}

// MigrateDown takes the migrations after version `to` away, newest first. It deletes data.
func (d *Database) MigrateDown(ctx context.Context, to int) error {
	return d.migrating(ctx, func(m *migrator) error {
		for i := len(m.applied) - 1; i >= 0 && m.applied[i].Version > to; i-- {
			k := m.known[i]
			if err := m.step(ctx, k.Down, "MigrationUndone", k.Version); err != nil {
				return fmt.Errorf("migration %03d_%s down: %w", k.Version, k.Name, err)
			}
		}
		return nil
	})
}

// MigrationStatus returns every migration that this program knows, oldest first. It writes nothing and takes no lock: services
// need no right to change the schema.
// Errors: ErrChecksum, ErrSchemaAhead, the database's own.
func (d *Database) MigrationStatus(ctx context.Context) ([]MigrationState, error) {
	m, err := d.migrator(ctx)
	if err != nil {
		return nil, err
	}
	_, err = m.load(ctx)
	if err = errors.Join(err, m.conn.Close()); err != nil {
		return nil, err
	}
	out := make([]MigrationState, len(m.known))
	for i, k := range m.known {
		out[i] = MigrationState{Version: k.Version, Name: k.Name}
		if i < len(m.applied) {
			out[i].AppliedAt = m.applied[i].at
		}
	}
	return out, nil
}

// CheckSchema returns nil when the schema is the one of this program.
// Errors: ErrSchemaBehind, ErrSchemaAhead, ErrChecksum; taskstate.ErrUnavailable.
func (d *Database) CheckSchema(ctx context.Context) error {
	states, err := d.MigrationStatus(ctx)
	if err != nil {
		if errors.Is(err, ErrChecksum) || errors.Is(err, ErrSchemaAhead) {
			return err
		}
		return fmt.Errorf("check schema: %w: %w", taskstate.ErrUnavailable, err)
	}
	for _, m := range states {
		if m.AppliedAt.IsZero() {
			return fmt.Errorf("%w: %03d_%s", ErrSchemaBehind, m.Version, m.Name)
		}
	}
	return nil
}

// appliedMigration is a row of schema_migrations.
type appliedMigration struct {
	migrations.Migration
	at time.Time
}

// migrator runs migrations on one connection that holds the runner's lock.
type migrator struct {
	*Database
	conn    *sql.Conn
	applied []appliedMigration
	known   []migrations.Migration // they begin with exactly what is applied
}

// migrating runs f with the runner's lock. On SQLite the lock is an exclusive transaction around everything.
func (d *Database) migrating(ctx context.Context, f func(m *migrator) error) (err error) {
	m, err := d.migrator(ctx)
	if err != nil {
		return err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("migrate: %w", err), m.conn.Close())
	}
	if err = m.begin(ctx); err == nil {
		err = f(m)
	}
	return errors.Join(err, unlock(err), m.conn.Close())
}

// migrator takes a connection, without the lock, and loads what is known.
func (d *Database) migrator(ctx context.Context) (*migrator, error) {
	known, err := migrations.Load(d.Dialect())
	if err != nil {
		return nil, err
	}
	conn, err := d.backend.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return &migrator{Database: d, conn: conn, known: known}, nil
}

// lock takes the runner's lock; the answer gives it back.
func (m *migrator) lock(ctx context.Context) (unlock func(error) error, err error) {
	if m.dialect() == SQLite {
		return func(failed error) error { return m.end(ctx, failed) }, m.lockFile(ctx)
	}
	var got sql.NullInt64
	if err := m.conn.QueryRowContext(ctx, m.queries.Get("MigrateLock")).Scan(&got); err != nil {
		return nil, err
	}
	if got.Int64 != 1 {
		return nil, errMigrateBusy
	}
	return func(error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), migrateUnlockTime)
		defer cancel()
		_, err := m.conn.ExecContext(ctx, m.queries.Get("MigrateUnlock"))
		return err
	}, nil
}

// lockFile waits for SQLite's lock, as GET_LOCK does for a server's.
func (m *migrator) lockFile(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, migrateLockTime)
	defer cancel()
	for n := 0; ; n++ {
		_, err := m.conn.ExecContext(limited, "BEGIN EXCLUSIVE")
		if err == nil || limited.Err() == nil && m.backend.ClassOf(err) != Retry {
			return err
		}
		if rest(limited, n) != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("%w: %w", errMigrateBusy, err))
		}
	}
}

// end commits, or rolls back after a failure.
func (m *migrator) end(ctx context.Context, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), migrateUnlockTime)
	defer cancel()
	verb := "COMMIT"
	if failed != nil {
		verb = "ROLLBACK"
	}
	_, err := m.conn.ExecContext(ctx, verb)
	return err
}

// begin is load, and makes the runner's own table where it is missing.
func (m *migrator) begin(ctx context.Context) error {
	there, err := m.load(ctx)
	if err != nil || there {
		return err
	}
	table, err := migrations.SchemaTable(m.Dialect())
	if err != nil {
		return err
	}
	_, err = m.conn.ExecContext(ctx, table)
	return err
}

// load reads what is applied and checks it against the files; there tells whether schema_migrations is.
func (m *migrator) load(ctx context.Context) (there bool, err error) {
	var n int
	if err := m.conn.QueryRowContext(ctx, m.queries.Get("MigrationsThere")).Scan(&n); err != nil || n == 0 {
		return false, wrap("look for schema_migrations", err)
	}
	if m.applied, err = m.read(ctx); err != nil {
		return true, err
	}
	for i, a := range m.applied {
		switch {
		case i >= len(m.known) || a.Version > m.known[len(m.known)-1].Version:
			return true, fmt.Errorf("%w: it has %03d_%s", ErrSchemaAhead, a.Version, a.Name)
		case a.Version != m.known[i].Version || a.Checksum != m.known[i].Checksum:
			return true, fmt.Errorf("%w: %03d_%s", ErrChecksum, a.Version, a.Name)
		}
	}
	return true, nil
}

// read reads schema_migrations.
func (m *migrator) read(ctx context.Context) ([]appliedMigration, error) {
	out, err := Collect(ctx, m.conn, func(rows *sql.Rows) (a appliedMigration, err error) {
		var at taskstate.DBTime
		err = rows.Scan(&a.Version, &a.Name, &a.Checksum, &at)
		a.at = at.Time
		return a, err
	}, m.queries.Get("MigrationsApplied"))
	return out, wrap("read applied migrations", err)
}

// step runs the statements of one migration and notes it, on Postgres in one transaction.
func (m *migrator) step(ctx context.Context, text, note string, args ...any) error {
	text, err := m.collate(ctx, text)
	if err != nil {
		return err
	}
	run := func() error {
		for _, statement := range migrations.Statements(text) {
			if _, err := m.conn.ExecContext(ctx, statement); err != nil {
				first, _, _ := strings.Cut(statement, "\n")
				return fmt.Errorf("%s: %w", first, err)
			}
			if err := crash.Fault("migrate.after_statement"); err != nil {
				return err
			}
		}
		_, err := m.conn.ExecContext(ctx, Rebind(m.dialect(), m.queries.Get(note)), args...)
		return err
	}
	if m.dialect() != Postgres {
		return run()
	}
	if _, err := m.conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	err = run()
	return errors.Join(err, m.end(ctx, err))
}

// noPad stands in a migration of MySQL for the binary collation that does not pad, whose name is the server's.
const noPad = "@nopad"

// exact are the binary collations that do not pad: MariaDB's own, and that of MySQL 8, which later MariaDBs know as an alias.
var exact = [...]string{"utf8mb4_nopad_bin", "utf8mb4_0900_bin"}

// collate puts the server's collation into a migration's text that asks for it.
func (m *migrator) collate(ctx context.Context, text string) (string, error) {
	if m.dialect() != MySQL || !strings.Contains(text, noPad) {
		return text, nil
	}
	known, err := Collect(ctx, m.conn, Column[string], m.queries.List("MigrateCollations", len(exact)), exact[0], exact[1])
	if err != nil {
		return "", fmt.Errorf("read the server's collations: %w", err)
	}
	return withCollation(text, known)
}

// withCollation is a migration's text for a server that knows these collations. ErrNoCollation.
func withCollation(text string, known []string) (string, error) {
	for _, name := range exact {
		if slices.Contains(known, name) {
			return strings.ReplaceAll(text, noPad, name), nil
		}
	}
	return "", ErrNoCollation
}

// NewEpoch is a random positive number of 63 bits: the name of one history of a database.
func NewEpoch() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(1, int64(binary.BigEndian.Uint64(b[:])>>1))
}
