package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// runner is a pool or one connection of it.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// session is a taskstate.Tx: it fits placeholders and arguments to the dialect.
type session struct {
	db *Database
	on runner
	// later are writes that go with the next statement, or with the COMMIT: one turn of client and server for all of them.
	later   []Write
	waiting int   // their bytes
	failed  error // of what was to go before a statement that cannot carry an error
}

// Write is a statement of a transaction whose result nobody waits for.
type Write struct {
	Part
	Rows int // that it must write; 0: all of its own, or it fails. Where it is given, nothing may follow the text's last condition.
	// Until is when it must have ended by the database's clock, where Rows is given; zero: whenever. SQLite does not compare it.
	Until time.Time
}

// maxWaiting bounds the bytes of writes that wait: MariaDB keeps what is left of a text for each of its statements, so long ones go alone.
const maxWaiting = 16 << 10

// size is about how many bytes a write has.
func (w Write) size() int {
	n := len(w.Text)
	for _, a := range w.Args {
		switch a := a.(type) {
		case string:
			n += len(a)
		case []byte:
			n += len(a)
		}
	}
	return n
}

// Exec runs a write; fewer rows mean that a predicate did not hold, and ErrConflict. On a server it runs with the transaction's next statement
// or its COMMIT, which then returns its error.
func (w Write) Exec(ctx context.Context, tx taskstate.Tx) error {
	size := w.size()
	if s, ok := tx.(*session); ok && s.waits() && size <= maxWaiting {
		s.later = append(s.later, w)
		if s.waiting += size; s.waiting <= maxWaiting {
			return nil
		}
		return s.flush(ctx)
	}
	res, err := tx.ExecContext(ctx, w.Text, w.Args...)
	if err != nil {
		return err
	}
	if done, err := res.RowsAffected(); err != nil || w.Rows > 0 && done != int64(w.Rows) {
		return fmt.Errorf("%d of %d: %w", done, w.Rows, errors.Join(ErrConflict, err))
	}
	return nil
}

// waits reports whether writes may wait: in a transaction of this package, which ends with flush, where the server takes several statements.
func (t *session) waits() bool {
	_, transaction := t.on.(*sql.Conn)
	return transaction && t.db.backend.Expect != nil
}

// Flush runs the writes of a transaction that wait, for whoever must know that they are done.
func Flush(ctx context.Context, tx taskstate.Tx) error {
	if s, ok := tx.(*session); ok {
		return s.flush(ctx)
	}
	return nil
}

// flush runs the writes that wait, in one turn with what is given.
func (t *session) flush(ctx context.Context, last ...Part) error {
	if len(t.later)+len(last) == 0 {
		return nil
	}
	writes := t.later
	t.later, t.waiting = nil, 0
	var all, checked []Part
	for _, w := range writes {
		if err := t.seen(w.Text, false); err != nil {
			return err
		}
		all = append(all, w.Part)
		if w.Rows > 0 {
			w.Part = t.db.backend.Expect(w)
		}
		checked = append(checked, w.Part)
	}
	end := t.together(ctx, append(all, last...))
	err := t.run(ctx, append(checked, last...))
	if end(err); err != nil {
		return err
	}
	for _, w := range writes {
		if err := t.seen(w.Text, true); err != nil {
			return err
		}
	}
	return nil
}

// run runs statements in one turn.
func (t *session) run(ctx context.Context, all []Part) error {
	if conn, ok := t.on.(*sql.Conn); ok && t.db.backend.Together != nil {
		for i, p := range all {
			all[i].Text = Rebind(t.db.dialect(), p.Text)
		}
		return t.unique(t.db.backend.Together(ctx, conn, all))
	}
	var text strings.Builder
	var args []any
	for i, p := range all {
		if i > 0 {
			text.WriteString(";\n")
		}
		text.WriteString(p.Text)
		args = append(args, p.Args...)
	}
	_, err := t.exec(ctx, text.String(), args)
	return err
}

// exec runs a text.
func (t *session) exec(ctx context.Context, query string, args []any) (sql.Result, error) {
	res, err := t.on.ExecContext(ctx, Rebind(t.db.dialect(), query), t.args(args)...)
	return res, t.unique(err)
}

// unique gives the error of a unique key its name.
func (t *session) unique(err error) error {
	if err != nil && t.db.ClassOf(err) == Unique {
		return fmt.Errorf("%w: %w", taskstate.ErrUnique, err)
	}
	return err
}

// Dialect is the database's.
func (t *session) Dialect() string { return t.db.Dialect() }

// ExecContext implements taskstate.Tx.
func (t *session) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	if err := t.seen(query, false); err != nil {
		return nil, err
	}
	span := t.statement(ctx, query)
	res, err := t.exec(ctx, query, args)
	if span != nil {
		rowsWritten(span, res, err)
	}
	if err == nil {
		err = t.seen(query, true)
	}
	return res, err
}

// QueryContext implements taskstate.Tx.
func (t *session) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	if err := t.seen(query, false); err != nil {
		return nil, err
	}
	span := t.statement(ctx, query)
	rows, err := t.on.QueryContext(ctx, Rebind(t.db.dialect(), query), t.args(args)...)
	if span != nil { // the time to the first row; the rest comes as it is read
		endSpan(span, err)
	}
	return rows, err
}

// QueryRowContext implements taskstate.Tx.
func (t *session) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := t.flush(ctx); err != nil { // a Row cannot carry it; the transaction ends with it
		t.failed = err
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		end()
	}
	_ = t.seen(query, false) // only Exec and Query are made to fail
	span := t.statement(ctx, query)
	row := t.on.QueryRowContext(ctx, Rebind(t.db.dialect(), query), t.args(args)...)
	if span != nil {
		endSpan(span, row.Err())
	}
	return row
}

// seen tells the test's watch.
func (t *session) seen(query string, done bool) error {
	if t.db.Watch == nil {
		return nil
	}
	return t.db.Watch(query, done)
}

// args fits arguments to the driver; the caller's slice stays as it is.
func (t *session) args(args []any) []any {
	fit := t.db.backend.Arg
	if fit == nil {
		return args
	}
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = fit(a)
	}
	return out
}
