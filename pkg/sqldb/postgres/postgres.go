// Package postgres opens Postgres for the task store. It is the only home of the Postgres driver.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millweir/millweir/pkg/sqldb"
)

// dialTime bounds one attempt to connect.
const dialTime = 5 * time.Second

// errRolledBack says that COMMIT ended a transaction in which a statement had failed before.
var errRolledBack = errors.New("postgres: COMMIT rolled back: a statement of this transaction had failed")

func init() {
	sqldb.Register(sqldb.Driver{
		Schemes: []string{"postgres", "postgresql"}, Form: "postgres://user:password@host:5432/database",
		Check: func(address string) error {
			_, err := parse(address)
			return err
		},
		Open: open,
	})
}

// parse reads the address; its error never shows the password: pgx hides it only where it can tell which part it is.
func parse(address string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("not a URL of the form postgres://user:password@host:5432/database: %s", sqldb.HideLogin(err.Error(), address))
	}
	return cfg, nil
}

// open prepares the pool; nothing connects before the first statement (design D16).
func open(_ context.Context, address string, pool sqldb.PoolSize, _ func() time.Time) (*sqldb.Backend, error) {
	cfg, err := parse(address)
	if err != nil {
		return nil, err
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = dialTime
	}
	for _, forced := range []string{"idle_in_transaction_session_timeout", "timezone", "default_transaction_isolation"} {
		delete(cfg.RuntimeParams, forced)
	}
	settings := map[string]string{
		"application_name": "millweir",
		"jit":              "off", // statements of microseconds: compiling them costs more than it gives
		// Rows are looked up by key, on disks without heads. With the default of 4 the server reads all of a table that was never
		// analyzed for a batch of 256 keys (measured: 149 ms a claim).
		"random_page_cost":                    "1.1",
		"lock_timeout":                        "10000", // ms: a wait ends as a retry, before the store's limit for a transaction
		"idle_in_transaction_session_timeout": strconv.FormatInt(pool.Silence.Milliseconds(), 10),
		"timezone":                            "UTC",
		"default_transaction_isolation":       "read committed",
	}
	db := openPool(cfg, settings, pool)
	cfg = cfg.Copy()
	delete(cfg.RuntimeParams, "lock_timeout")
	settings["lock_timeout"] = strconv.FormatInt(sqldb.BeatLock.Milliseconds(), 10)
	beats := openPool(cfg, settings, pool.ForBeats())
	return &sqldb.Backend{
		Dialect: sqldb.Postgres, Tx: db, DB: db, Reads: db, Beats: beats, Begin: "BEGIN", Expect: expect, Together: together,
		Classify: classify, Inspect: inspect, MaxIdle: pool.MaxIdle,
	}, nil
}

// openPool makes a pool of connections with the settings that the address does not have.
func openPool(cfg *pgx.ConnConfig, settings map[string]string, pool sqldb.PoolSize) *sql.DB {
	set := sqldb.Settings(cfg.RuntimeParams, settings)
	connector := stdlib.GetConnector(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.PgConn().Exec(ctx, set).ReadAll()
		return err
	}))
	if !pool.AllowUnsafe {
		connector = sqldb.Guard(connector, inspect)
	}
	db := sql.OpenDB(connector)
	pool.Apply(db)
	return db
}

// expect implements sqldb.Backend: the text of the error, which the server's log has too, says what it means.
func expect(w sqldb.Write) sqldb.Part {
	late, args := "", append(slices.Clip(w.Args), w.Rows)
	if !w.Until.IsZero() {
		late, args = " AND clock_timestamp() < CAST(? AS timestamptz)", append(args, w.Until)
	}
	return sqldb.Part{Args: args, Text: "WITH written AS (" + w.Text + " RETURNING 1) SELECT CASE WHEN count(*) = ?" + late +
		" THEN 0 ELSE CAST('" + sqldb.ErrConflict.Error() + ": ' || count(*) AS integer) END FROM written"}
}

// together implements sqldb.Backend. It reads the tag of COMMIT: after a failed statement that is ROLLBACK, and no error.
func together(ctx context.Context, conn *sql.Conn, parts []sqldb.Part) error {
	return conn.Raw(func(c any) error {
		pg, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("postgres: unexpected connection %T", c)
		}
		var all pgx.Batch
		for _, p := range parts {
			all.Queue(p.Text, p.Args...)
		}
		results := pg.Conn().SendBatch(ctx, &all)
		for _, p := range parts {
			tag, err := results.Exec()
			if err == nil && p.Text == "COMMIT" && tag.String() != "COMMIT" {
				err = errRolledBack
			}
			if err != nil {
				_ = results.Close() // with the same error
				return err
			}
		}
		return results.Close()
	})
}

// classify knows SQLSTATE.
func classify(err error) (sqldb.Class, bool) {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return sqldb.Lost, true
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed") {
			return sqldb.Lost, true
		}
		return sqldb.Other, errors.Is(err, errRolledBack)
	}
	switch {
	case e.Code == "22P02" && strings.Contains(e.Message, sqldb.ErrConflict.Error()): // of expect
		return sqldb.Retry, true
	case e.Code == "40001", e.Code == "40P01", e.Code == "55P03": // serialization, deadlock, lock wait
		return sqldb.Retry, true
	case e.Code == "23505":
		return sqldb.Unique, true
	case e.Code == "25006", // read only
		e.Code == "57014",                    // canceled by an operator: our own cancels end the context
		e.Code == "26000", e.Code == "42P05", // a prepared statement of another session: a pooler hands out a session for each transaction
		strings.HasPrefix(e.Code, "57P"), // the server stops, or is starting
		strings.HasPrefix(e.Code, "08"),  // connection
		strings.HasPrefix(e.Code, "53"):  // out of disk, memory or connections
		return sqldb.Lost, true
	}
	return sqldb.Other, true
}
