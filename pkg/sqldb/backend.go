package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Class says what an error of a database means to a transaction.
type Class int

// The classes.
const (
	Other  Class = iota // the statement or its data; repeating it changes nothing
	Retry               // deadlock, lock wait, serialization: the transaction is run again
	Unique              // a unique key exists already
	Lost                // the connection or the database is not there
)

// Backend is what a driver makes of an address: open pools, and what cannot be said in SQL.
type Backend struct {
	Dialect Dialect
	// Tx runs transactions, Reads statements outside of them that only read, DB all others. They may be the same pool.
	Tx, DB, Reads *sql.DB
	// Beats renews leases: connections of its own, so that runs which hold all the others cost no lease, and with short waits
	// for locks. It may be the same pool as DB.
	Beats *sql.DB
	// Begin starts a transaction on Tx that may write, at READ COMMITTED or stricter; empty: any first statement does.
	Begin string
	// Expect is a write as a text that fails, with an error of class Retry, unless the write did what was expected. nil: statements go one by one.
	Expect func(w Write) Part
	// Together runs statements in one turn, the last of which may be COMMIT; nothing behind one that failed is run. It must not return nil for
	// a transaction that the server rolled back. nil: as one text.
	Together func(ctx context.Context, conn *sql.Conn, parts []Part) error
	// Classify is asked for errors that ClassOf does not know by itself; known false: not an error of this driver.
	Classify func(err error) (class Class, known bool)
	// Arg turns an argument into the form that the driver stores right; nil: as it is.
	Arg func(v any) any
	// Inspect reads what the server keeps of acknowledged commits.
	Inspect InspectFunc
	// MaxIdle is how many unused connections DB and Tx keep each; 0 where none can die by itself.
	MaxIdle int
}

// Close closes the pools.
func (b *Backend) Close() error {
	var err error
	for _, pool := range []*sql.DB{b.Tx, b.DB, b.Reads, b.Beats} { // closing one twice does nothing
		err = errors.Join(err, pool.Close())
	}
	return err
}

// DropIdle closes the connections that nobody uses. When one did not answer in time, those that were opened beside it are as
// likely dead (a failover, a firewall that lost its table), and each would cost its user another time limit.
func (b *Backend) DropIdle() {
	if b.MaxIdle > 0 {
		for _, pool := range []*sql.DB{b.DB, b.Tx} {
			pool.SetMaxIdleConns(-1)
			pool.SetMaxIdleConns(b.MaxIdle)
		}
	}
	if b.Beats != b.DB {
		b.Beats.SetMaxIdleConns(-1)
		b.Beats.SetMaxIdleConns(beatIdle)
	}
}

// ClassOf says what err means: connection errors of any driver first, then what the driver knows.
func (b *Backend) ClassOf(err error) Class {
	var network net.Error
	var unsafe *UnsafeError
	switch {
	case errors.As(err, &unsafe), // it answers, but must not be used
		errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &network):
		return Lost
	}
	class, _ := b.Classify(err)
	return class
}

// Known reports whether the driver itself answered err, as opposed to Go code around it.
func (b *Backend) Known(err error) bool {
	_, known := b.Classify(err)
	return known
}

// PoolSize are the limits of a pool of connections to a server.
type PoolSize struct {
	MaxOpen  int           // at least 1
	MaxIdle  int           // at most MaxOpen
	IdleTime time.Duration // an idle connection is closed after it
	// Silence is how long the server waits for the next word of a session before it ends it and frees its locks:
	// a process that was paused or cut off inside a transaction must not hold up others for hours. Whole seconds.
	Silence time.Duration
	// AllowUnsafe uses a server even though its own crash would lose answered commits (see Guard).
	AllowUnsafe bool
}

// Apply sets the limits on db.
func (p PoolSize) Apply(db *sql.DB) {
	db.SetMaxOpenConns(p.MaxOpen)
	db.SetMaxIdleConns(p.MaxIdle)
	db.SetConnMaxIdleTime(p.IdleTime)
}

// defaultTimeout bounds one attempt of one transaction: longer than any lock wait that the servers are told to allow.
const defaultTimeout = 30 * time.Second

// The pool of heartbeats: one statement at a time, and more only while rows are locked.
const (
	beatIdle = 1
	beatOpen = 4
)

// BeatLock is how long a heartbeat waits for a row's lock, as short as InnoDB can.
const BeatLock = time.Second

// ForBeats are the limits of the pool that renews leases.
func (p PoolSize) ForBeats() PoolSize {
	p.MaxOpen, p.MaxIdle = beatOpen, beatIdle
	return p
}

// Settings is the text that sets what a Postgres session is to have and the address has not given. A pooler in between, such as
// PgBouncer, takes few settings with the start of a connection, and all by statements.
func Settings(given, wanted map[string]string) string {
	var all []string
	for name, value := range wanted {
		if _, has := given[name]; !has {
			all = append(all, fmt.Sprintf("SET %s = '%s'", name, value))
		}
	}
	return strings.Join(all, "; ")
}

// SetUp returns a connector that runs statements on every new connection before it is used.
func SetUp(c driver.Connector, statements ...string) driver.Connector {
	return Checked(c, func(ctx context.Context, conn driver.Conn) error {
		exec, ok := conn.(driver.ExecerContext)
		if !ok {
			return errors.New("driver cannot run statements on a connection")
		}
		for _, s := range statements {
			if _, err := exec.ExecContext(ctx, s, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Checked returns a connector that gives out a new connection only after first was done with it; an error of first closes it.
func Checked(c driver.Connector, first func(ctx context.Context, conn driver.Conn) error) driver.Connector {
	return &checked{c, first}
}

type checked struct {
	driver.Connector
	first func(ctx context.Context, conn driver.Conn) error
}

// Connect implements driver.Connector.
func (c *checked) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.first(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
