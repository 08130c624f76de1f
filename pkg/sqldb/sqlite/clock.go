package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/millweir/millweir/pkg/taskstate"
)

// nowCall is replaced in the text of every statement by one stamp.
const nowCall = "mw_now()"

func init() {
	// The driver's functions are global, so these know no store's clock: mw_now is here only for
	// connections that other programs of this process open.
	sqlite.MustRegisterScalarFunction("mw_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UTC().Format(taskstate.DBTimeLayout), nil
	})
	sqlite.MustRegisterDeterministicScalarFunction("mw_add", 2, stampAdd)
	sqlite.MustRegisterDeterministicScalarFunction("mw_diff", 2, stampDiff)
}

// stampAdd is mw_add(stamp, microseconds); NULL gives NULL.
func stampAdd(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	if args[0] == nil || args[1] == nil {
		return nil, nil
	}
	text, isText := args[0].(string)
	micros, isInt := args[1].(int64)
	if !isText || !isInt {
		return nil, fmt.Errorf("mw_add: want a stamp and microseconds, got %T and %T", args[0], args[1])
	}
	t, err := time.ParseInLocation(taskstate.DBTimeLayout, text, time.UTC)
	if err != nil {
		return nil, fmt.Errorf("mw_add: %w", err)
	}
	return t.Add(time.Duration(micros) * time.Microsecond).Format(taskstate.DBTimeLayout), nil
}

// stampDiff is mw_diff(a, b): a − b in microseconds; NULL gives NULL.
func stampDiff(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	if args[0] == nil || args[1] == nil {
		return nil, nil
	}
	var t [2]time.Time
	for i, v := range args {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("mw_diff: want a stamp, got %T", v)
		}
		var err error
		if t[i], err = time.ParseInLocation(taskstate.DBTimeLayout, text, time.UTC); err != nil {
			return nil, fmt.Errorf("mw_diff: %w", err)
		}
	}
	return t[0].Sub(t[1]).Microseconds(), nil
}

// connector opens connections whose statements see the store's clock.
type connector struct {
	dsn string
	now func() time.Time
}

// globalDriver returns the registered driver: only that one knows the functions.
var globalDriver = sync.OnceValue(func() driver.Driver {
	db, err := sql.Open("sqlite", "")
	if err != nil {
		panic(err) // the driver registers itself in this package's imports
	}
	defer db.Close() //nolint:errcheck // nothing was opened
	return db.Driver()
})

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return globalDriver() }

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	opened, err := globalDriver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	full, ok := opened.(fullConn)
	if !ok {
		return nil, errors.Join(errors.New("sqlite driver lacks what the store needs"), opened.Close())
	}
	return &conn{fullConn: full, now: c.now}, nil
}

// fullConn is what the driver's connections can do.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
}

// conn puts the clock into statements.
type conn struct {
	fullConn
	now func() time.Time
}

// stamped is the statement with one instant in all places of mw_now().
func (c *conn) stamped(query string) string {
	if !strings.Contains(query, nowCall) {
		return query
	}
	return strings.ReplaceAll(query, nowCall, "'"+c.now().UTC().Format(taskstate.DBTimeLayout)+"'")
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.fullConn.ExecContext(ctx, c.stamped(query), args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.fullConn.QueryContext(ctx, c.stamped(query), args)
}

// PrepareContext implements driver.ConnPrepareContext: a statement with a clock is prepared anew at each use.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if strings.Contains(query, nowCall) {
		return &late{conn: c, query: query}, nil
	}
	return c.fullConn.PrepareContext(ctx, query)
}

// late is a prepared statement with a clock.
type late struct {
	conn  *conn
	query string
}

// Close implements driver.Stmt.
func (*late) Close() error { return nil }

// NumInput implements driver.Stmt: the driver counts.
func (*late) NumInput() int { return -1 }

// Exec implements driver.Stmt.
func (*late) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// Query implements driver.Stmt.
func (*late) Query([]driver.Value) (driver.Rows, error) { return nil, driver.ErrSkip }

// ExecContext implements driver.StmtExecContext.
func (l *late) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return l.conn.ExecContext(ctx, l.query, args)
}

// QueryContext implements driver.StmtQueryContext.
func (l *late) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return l.conn.QueryContext(ctx, l.query, args)
}
