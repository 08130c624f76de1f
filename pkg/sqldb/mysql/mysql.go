// Package mysql opens MySQL or MariaDB for the task store. It is the only home of the MySQL driver.
//
// Every connection is set up the same way on both servers by statements that both know: READ COMMITTED (design D3),
// UTC, strict mode, a bounded lock wait. Rows matched, not rows changed, are counted.
package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/millweir/millweir/pkg/sqldb"
)

const (
	defaultPort = "3306"
	dialTime    = 5 * time.Second
)

// setUp fits a session to the store, in words that MySQL and MariaDB share.
// The lock wait is shorter than the store's limit for a transaction, so that a wait ends as a retry.
// MariaDB, which alone reads what /*M! begins, makes a table of a list of 1000 values or more and may then read all rows of the other
// one; without that it looks each value up, as in a shorter list.
var setUp = []string{
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
	"SET autocommit = 1, time_zone = '+00:00', innodb_lock_wait_timeout = 10, " +
		"sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION' /*M! , in_predicate_conversion_threshold = 0 */",
}

func init() {
	sqldb.Register(driverOf("mysql://user:password@host:3306/database", parseURL, "mysql", "mariadb"))
	sqldb.Register(driverOf("user:password@tcp(host:3306)/database", parseDSN, sqldb.SchemeDSN))
}

// driverOf is the driver for one form of addresses.
func driverOf(form string, parse func(address string) (*driver.Config, error), schemes ...string) sqldb.Driver {
	return sqldb.Driver{
		Schemes: schemes, Form: form,
		Check: func(address string) error {
			_, err := parse(address)
			return err
		},
		Open: func(_ context.Context, address string, pool sqldb.PoolSize, _ func() time.Time) (*sqldb.Backend, error) {
			cfg, err := parse(address)
			if err != nil {
				return nil, err
			}
			return open(cfg, pool)
		},
	}
}

// parseDSN reads a DSN; its error never shows the password.
func parseDSN(dsn string) (*driver.Config, error) {
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("not a DSN of the form user:password@tcp(host:3306)/database: %s", sqldb.HideLogin(err.Error(), dsn))
	}
	if cfg.DBName == "" {
		return nil, errors.New("names no database (user:password@tcp(host:3306)/database)")
	}
	return cfg, nil
}

// parseURL turns a URL into the driver's configuration.
func parseURL(address string) (*driver.Config, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("not a URL of the form mysql://user:password@host:3306/database")
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	dsn := "tcp(" + host + ":" + port + ")/" + url.PathEscape(strings.TrimPrefix(u.Path, "/"))
	if u.RawQuery != "" {
		dsn += "?" + u.RawQuery
	}
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	return cfg, nil
}

// open sets what the store relies on, whatever the address says; nothing connects before the first statement (design D16).
func open(cfg *driver.Config, pool sqldb.PoolSize) (*sqldb.Backend, error) {
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.ClientFoundRows = true
	cfg.InterpolateParams = true // one round trip a statement; the driver escapes by the server's own flags
	cfg.MultiStatements = false
	cfg.Logger = &driver.NopLogger{} // errors come back to the caller, who logs them
	if cfg.Timeout == 0 {
		cfg.Timeout = dialTime
	}
	if cfg.Collation == "" {
		cfg.Collation = "utf8mb4_bin"
	}
	several := cfg.Clone()
	several.MultiStatements = true // a transaction's writes go with its COMMIT (sqldb.Write)
	db, err := connect(cfg, pool)
	if err != nil {
		return nil, err
	}
	// A transaction begins with its first statement: one round trip less for each.
	tx, err := connect(several, pool, "SET SESSION autocommit = 0")
	if err != nil {
		return nil, err
	}
	beats, err := connect(cfg, pool.ForBeats(), fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", int(sqldb.BeatLock.Seconds())))
	if err != nil {
		return nil, err
	}
	return &sqldb.Backend{
		Dialect: sqldb.MySQL, Tx: tx, DB: db, Reads: db, Beats: beats,
		Expect: expect, Classify: classify, Inspect: inspect, MaxIdle: pool.MaxIdle,
	}, nil
}

// connect makes a pool whose connections are set up by more statements.
func connect(cfg *driver.Config, pool sqldb.PoolSize, more ...string) (*sql.DB, error) {
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("mysql %s: %w", cfg.Addr, err)
	}
	first := append([]string{fmt.Sprintf("SET SESSION wait_timeout = %d", int(pool.Silence.Seconds()))}, setUp...)
	made := sqldb.Checked(sqldb.SetUp(connector, first...), largeStatements)
	if !pool.AllowUnsafe {
		made = sqldb.Guard(made, inspect)
	}
	db := sql.OpenDB(sqldb.SetUp(made, more...))
	pool.Apply(db)
	return db, nil
}

// numberOutOfRange is the error of expect's statement.
const numberOutOfRange = 1690

// expect implements sqldb.Backend.
func expect(w sqldb.Write) sqldb.Part {
	text, args := w.Text+";\nSET @kept = 9223372036854775807 + (ROW_COUNT() <> ?", append(slices.Clip(w.Args), w.Rows)
	if !w.Until.IsZero() {
		text, args = text+" OR NOW(6) >= ?", append(args, w.Until)
	}
	return sqldb.Part{Text: text + ")", Args: args}
}

// leastPacket is more than the largest statement: 4 MiB of text (packages taskstore, outbox and pipeline), twice as long when each
// character is escaped. Both servers take as much by default.
const leastPacket = 16 << 20

// largeStatements refuses a server that takes no large statement: it hangs up on one, which looks as if it were away.
func largeStatements(ctx context.Context, conn sqldriver.Conn) error {
	row, err := sqldb.Row(ctx, conn, "SELECT @@max_allowed_packet")
	if err != nil {
		return err
	}
	if n, err := strconv.ParseInt(row[0], 10, 64); err == nil && n < leastPacket {
		return fmt.Errorf("the server's max_allowed_packet is %d: set it to 16M or more, statements with the text of documents are so large", n)
	}
	return nil
}

// classify knows the numbers of both servers.
func classify(err error) (sqldb.Class, bool) {
	if errors.Is(err, driver.ErrInvalidConn) {
		return sqldb.Lost, true
	}
	var e *driver.MySQLError
	if !errors.As(err, &e) {
		return sqldb.Other, false
	}
	switch e.Number {
	case numberOutOfRange, // rows are not as they were read
		1213,       // deadlock
		1205, 3572, // lock wait timeout; NOWAIT on MySQL 8
		3101, // Group Replication found a conflict, and rolled back
		1020: // row changed since it was read (innodb_snapshot_isolation)
		return sqldb.Retry, true
	case 1062:
		return sqldb.Unique, true
	case 1021, 1114, // disk or table full
		1040, 1203, // too many connections
		1047, 3100, // the node is not ready, or not in its group: Galera, Group Replication
		1053, 1077, 1078, 1079, // the server stops
		1152, 1158, 1159, 1160, 1161, 1184, 4031, // network: broken off, or silent for too long
		1290, 1792, 1836, // read only
		1317, 1927, // statement or connection killed
		2006, 2013:
		return sqldb.Lost, true
	}
	return sqldb.Other, true
}
