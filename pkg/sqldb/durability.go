package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Level says what a database keeps of the commits that it has answered.
type Level string

// The levels, the strongest first.
const (
	LevelDisk    Level = "disk"    // everything, through a power failure too
	LevelSecond  Level = "1s"      // a power failure loses up to about the last second
	LevelNone    Level = "none"    // the server's own crash loses commits, or a power failure ruins the database
	LevelUnknown Level = "unknown" // the server does not say
)

// Setting is one setting of a server on which durability depends.
type Setting struct {
	Name, Value string
	Level       Level  // what the server keeps because of this setting alone
	Want        string // the value that keeps everything
	Loses       string // what the present value gives up; empty at LevelDisk
}

// String is name=value.
func (s Setting) String() string { return s.Name + "=" + s.Value }

// Durability are the settings of one server.
type Durability []Setting

// Level is that of the weakest setting.
func (d Durability) Level() Level {
	for _, level := range []Level{LevelNone, LevelSecond, LevelUnknown} {
		if slices.ContainsFunc(d, func(s Setting) bool { return s.Level == level }) {
			return level
		}
	}
	return LevelDisk
}

// Weak are the settings that do not keep everything.
func (d Durability) Weak() Durability {
	return slices.DeleteFunc(slices.Clone(d), func(s Setting) bool { return s.Level == LevelDisk })
}

// String lists the settings.
func (d Durability) String() string {
	names := make([]string, len(d))
	for i, s := range d {
		names[i] = s.String()
	}
	return strings.Join(names, " ")
}

// UnsafeError says that a server would lose answered commits by its own crash and is therefore not used.
type UnsafeError struct{ Durability Durability }

// Error names each setting at fault, what it loses and what to do.
func (e *UnsafeError) Error() string {
	var b strings.Builder
	for _, s := range e.Durability {
		if s.Level == LevelNone {
			fmt.Fprintf(&b, "%s: %s; set %s=%s, or ", s, s.Loses, s.Name, s.Want)
		}
	}
	return "not durable: " + b.String() + "ALLOW_UNSAFE_DURABILITY=true to accept the loss"
}

// InspectFunc reads a server's durability on one of its connections.
type InspectFunc func(ctx context.Context, conn driver.Conn) (Durability, error)

// Guard returns a connector that refuses a server of LevelNone with an UnsafeError, at every new connection:
// a server that comes back with other settings is found out before anything is written to it.
func Guard(c driver.Connector, look InspectFunc) driver.Connector {
	return Checked(c, func(ctx context.Context, conn driver.Conn) error {
		d, err := look(ctx, conn)
		if err == nil && d.Level() == LevelNone {
			err = &UnsafeError{Durability: d}
		}
		return err
	})
}

// Durability asks the database what it keeps of acknowledged commits, through a connection of the pool that writes. A server that
// Guard refuses is answered like any other. Errors: taskstate.ErrUnavailable with the cause.
func (d *Database) Durability(ctx context.Context) (found Durability, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.backend.DB.Conn(ctx)
	if err == nil {
		defer conn.Close() //nolint:errcheck // back into the pool
		err = conn.Raw(func(c any) (err error) {
			raw, ok := c.(driver.Conn)
			if !ok {
				return fmt.Errorf("unexpected connection %T", c)
			}
			found, err = d.backend.Inspect(ctx, raw)
			return err
		})
	}
	var unsafe *UnsafeError
	if errors.As(err, &unsafe) {
		return unsafe.Durability, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err)
	}
	return found, nil
}

// Row reads the only row of a query on a driver's connection, as text; query has no parameters.
func Row(ctx context.Context, conn driver.Conn, query string) ([]string, error) {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return nil, errors.New("driver cannot ask on a connection")
	}
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	values := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(values)
	if errors.Is(err, io.EOF) {
		err = sql.ErrNoRows
	}
	if err = errors.Join(err, rows.Close()); err != nil {
		return nil, err
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = text(v)
	}
	return texts, nil
}

// text is a driver's value as the server would print it.
func text(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
