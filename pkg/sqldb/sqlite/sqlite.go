// Package sqlite opens a SQLite file for the task store: WAL, synchronous=FULL, one connection that writes
// (BEGIN IMMEDIATE) and a pool that reads. It is the only home of the SQLite driver.
//
// SQLite has no clock with microseconds, so the process gives it one: the text mw_now() in a statement stands
// for one instant, the same wherever it occurs in that statement, as NOW(6) does on a server.
// mw_add(stamp, microseconds) and mw_diff(a, b) (a − b in microseconds) do the arithmetic on stamps.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// busyWait is how long SQLite itself waits for another process's lock; the store goes on waiting in its own
	// retries, which respect the context.
	busyWait = 250 * time.Millisecond
	// readers is enough for one process's status requests beside its writer.
	readers = 4
)

func init() {
	sqldb.Register(sqldb.Driver{
		Schemes: []string{"sqlite"}, Form: "sqlite:PATH",
		Check: func(address string) error {
			if path(address) == "" {
				return errors.New("want sqlite:PATH with a path")
			}
			return nil
		},
		Open: func(ctx context.Context, address string, _ sqldb.PoolSize, now func() time.Time) (*sqldb.Backend, error) {
			return open(ctx, path(address), now)
		},
	})
}

// path is the path of sqlite:PATH, sqlite://PATH or sqlite:///PATH.
func path(address string) string {
	return strings.TrimPrefix(strings.TrimPrefix(address, "sqlite:"), "//")
}

// open opens the file, makes it if it is missing (not its folder), and tries it. now is the database's clock, nil: time.Now.
// Errors: a path that cannot be used, or a file that is no SQLite database; both name the path.
func open(ctx context.Context, path string, now func() time.Time) (*sqldb.Backend, error) {
	if path == "" || strings.Contains(path, ":memory:") {
		return nil, errors.New("sqlite: a file path is needed (a database in memory would not outlive its connection)")
	}
	dir := filepath.Dir(path)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("sqlite: the folder %s does not exist", dir)
	}
	if now == nil {
		now = time.Now
	}
	writer := sql.OpenDB(&connector{dsn: dsn(path, false), now: now})
	writer.SetMaxOpenConns(1)
	writer.SetMaxIdleConns(1)
	if err := writer.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite %s: %w", path, err), writer.Close())
	}
	reads := sql.OpenDB(&connector{dsn: dsn(path, true), now: now})
	reads.SetMaxOpenConns(readers)
	reads.SetMaxIdleConns(readers)
	return &sqldb.Backend{
		Dialect: sqldb.SQLite, Tx: writer, DB: writer, Reads: reads, Beats: writer, Begin: "BEGIN IMMEDIATE",
		Classify: classify, Arg: argument, Inspect: inspect,
	}, nil
}

// dsn is the driver's address of the file with the pragmas of a connection.
func dsn(path string, readOnly bool) string {
	q := url.Values{}
	pragmas := []string{
		fmt.Sprintf("busy_timeout(%d)", busyWait.Milliseconds()),
		"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "temp_store(MEMORY)",
	}
	if readOnly {
		pragmas = append(pragmas, "query_only(1)")
	}
	q["_pragma"] = pragmas
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}
	return file.String()
}

// classify knows SQLite's result codes; the low byte is the primary one.
func classify(err error) (sqldb.Class, bool) {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return sqldb.Other, false
	}
	switch e.Code() {
	case lib.SQLITE_CONSTRAINT_UNIQUE, lib.SQLITE_CONSTRAINT_PRIMARYKEY:
		return sqldb.Unique, true
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return sqldb.Retry, true
	case lib.SQLITE_IOERR, lib.SQLITE_FULL, lib.SQLITE_CANTOPEN, lib.SQLITE_READONLY,
		lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB, lib.SQLITE_INTERRUPT:
		return sqldb.Lost, true
	}
	return sqldb.Other, true
}

// argument writes times as stamps.
func argument(v any) any {
	switch t := v.(type) {
	case time.Time:
		return t.UTC().Format(taskstate.DBTimeLayout)
	case *time.Time:
		if t == nil {
			return nil
		}
		return t.UTC().Format(taskstate.DBTimeLayout)
	case taskstate.DBTime:
		return t.UTC().Format(taskstate.DBTimeLayout)
	}
	return v
}
