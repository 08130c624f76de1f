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
	t, err := stamp(args[0])
	if err != nil {
		return nil, fmt.Errorf("mw_add: %w", err)
	}
	micros, ok := args[1].(int64)
	if !ok {
		return nil, fmt.Errorf("mw_add: want microseconds, got %T", args[1])
	}
	return t.Add(time.Duration(micros) * time.Microsecond).Format(taskstate.DBTimeLayout), nil
}

// stampDiff is mw_diff(a, b): a − b in microseconds; NULL gives NULL.
func stampDiff(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	if args[0] == nil || args[1] == nil {
		return nil, nil
	}
	a, errA := stamp(args[0])
	b, errB := stamp(args[1])
	if err := errors.Join(errA, errB); err != nil {
		return nil, fmt.Errorf("mw_diff: %w", err)
	}
	return a.Sub(b).Microseconds(), nil
}

// stamp reads a stamp.
func stamp(v driver.Value) (time.Time, error) {
	text, ok := v.(string)
	if !ok {
		return time.Time{}, fmt.Errorf("want a stamp, got %T", v)
	}
	return time.ParseInLocation(taskstate.DBTimeLayout, text, time.UTC)
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

// Prepare implements driver.Conn: a prepared statement would keep the time at which it was made.
func (*conn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("sqlite: statements with the store's clock cannot be prepared")
}
