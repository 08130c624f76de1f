package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// Deadlocks and lock waits are tried again so often, with waits that double from the first to the last value.
	maxRetries     = 12
	firstRetryWait = 2 * time.Millisecond
	lastRetryWait  = 500 * time.Millisecond
	// A dead connection of the pool is replaced; a server that does not answer is not waited for here.
	maxReconnects = 3
	// rollbackTime bounds the end of a transaction whose context is over.
	rollbackTime = 2 * time.Second
	// resolveTime bounds the search for the outcome of a COMMIT without an answer, also when the caller's context is over.
	resolveTime = 20 * time.Second
)

// ErrConflict says that a row was not as it was read: the transaction is run again. Of a locked row it cannot happen.
var ErrConflict = errors.New("rows are not as they were read")

// unknownError says that a COMMIT got no answer.
type unknownError struct{ cause error }

func (e *unknownError) Error() string { return "commit without an answer: " + e.cause.Error() }
func (e *unknownError) Unwrap() error { return e.cause }

// Call is one transaction.
type Call struct {
	Name  string // of its span, one of few words
	Batch int    // rows that it is about; 0: not known
	What  string // what is being done, for errors; empty: errors come as they are
	// Work is the inside; commit false rolls it back although nothing went wrong. It runs again when the transaction is retried.
	Work func(ctx context.Context, tx taskstate.Tx) (commit bool, err error)
	// Resolve finds out, after a COMMIT without an answer, whether it was done; it runs in a transaction of its own that is
	// rolled back, and must wait for the end of the one before by locking its rows. If it was not done, Work runs again.
	// nil: such a COMMIT ends in taskstate.ErrOutcomeUnknown.
	Resolve func(ctx context.Context, tx taskstate.Tx) (done bool, err error)
}

// Run runs a call's transaction until it is committed, refused or hopeless.
func (d *Database) Run(ctx context.Context, c Call) (err error) {
	ctx, end := d.traced(ctx, c)
	defer func() { end(err) }()
	for t := (tries{}); ; {
		err := d.once(ctx, c.Work)
		if err == nil {
			return nil
		}
		var unknown *unknownError
		if errors.As(err, &unknown) {
			done, serr := d.resolve(ctx, unknown, c.Resolve)
			if done || serr != nil {
				return wrap(c.What, serr)
			}
		}
		if err := d.again(ctx, c.What, &t, err); err != nil {
			return err
		}
	}
}

// Transact is Run for work that always commits, without a statement for the clock: for work whose statements are counted.
func (d *Database) Transact(ctx context.Context, f taskstate.ReadFunc, resolve func(ctx context.Context, tx taskstate.Tx) (done bool, err error)) error {
	work := func(ctx context.Context, tx taskstate.Tx) (bool, error) { return true, f(ctx, tx) }
	return d.Run(ctx, Call{Name: "transaction", What: "transaction", Work: work, Resolve: resolve})
}

// InTx runs f in a transaction of its own that knows the time. A COMMIT without an answer gives taskstate.ErrOutcomeUnknown:
// what f wrote has no name to look for.
func (d *Database) InTx(ctx context.Context, f taskstate.TxFunc) error {
	return d.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		m, err := d.ClockIn(ctx, tx)
		if err != nil {
			return err
		}
		return f(ctx, tx, m)
	}, nil)
}

// tries counts what was tried again.
type tries struct{ retries, lost int }

// again decides after a failure: nil, after a pause, to try once more; else the error to give up with.
func (d *Database) again(ctx context.Context, what string, t *tries, err error) error {
	class := d.ClassOf(err)
	switch {
	case ctx.Err() != nil:
		return wrap(what, d.ended(ctx, err))
	case class == Retry && t.retries < maxRetries:
		t.retries++
	case class == Lost && t.lost < maxReconnects:
		t.lost++
	case class == Lost, class == Retry:
		return wrap(what, fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err))
	default:
		return wrap(what, err)
	}
	if err := rest(ctx, t.retries+t.lost); err != nil {
		return wrap(what, d.ended(ctx, err))
	}
	return nil
}

// wrap says what was being done, if there is a word for it; nil stays nil.
func wrap(what string, err error) error {
	if err == nil || what == "" {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// ClassOf says what an error means to a transaction.
func (d *Database) ClassOf(err error) Class {
	switch {
	case errors.Is(err, ErrConflict):
		return Retry
	case errors.Is(err, context.DeadlineExceeded):
		return Lost // the attempt's own time limit: the caller's is looked at first
	}
	return d.backend.ClassOf(err)
}

// Known reports whether err came from the database, not from Go code alone.
func (d *Database) Known(err error) bool { return d.backend.Known(err) }

// ended is the error of a call whose context is over: a database that used up its time counts as one that does not answer.
func (d *Database) ended(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w (%w)", taskstate.ErrUnavailable, ctx.Err(), err)
	}
	return fmt.Errorf("%w (%w)", ctx.Err(), err)
}

// rest waits before the n-th retry, with jitter, or until ctx ends.
func rest(ctx context.Context, n int) error {
	wait := pause.Nth(n, firstRetryWait, lastRetryWait)
	pause.For(ctx, wait/2+rand.N(wait/2+1))
	return ctx.Err()
}

// once runs work in one transaction on one connection.
func (d *Database) once(ctx context.Context, work func(ctx context.Context, tx taskstate.Tx) (bool, error)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	defer func() { d.suspect(err) }()
	conn, err := d.backend.Tx.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	// Close gives the connection back; after a panic of a hook it must not carry an open transaction with it.
	finished := false
	defer func() {
		if !finished {
			discard(conn)
		}
		_ = conn.Close() // already given back or discarded: nothing to lose
	}()
	tx := &session{db: d, on: conn}
	if d.backend.Begin != "" {
		if _, err := tx.ExecContext(ctx, d.backend.Begin); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
	}
	commit, err := work(ctx, tx)
	if tx.failed != nil {
		err = tx.failed
	}
	if err == nil && commit {
		err = crash.Fault("store.before_commit")
	}
	if err != nil || !commit {
		finished = d.rollback(ctx, tx)
		return err
	}
	if err := d.commit(ctx, tx); err != nil {
		if class := d.ClassOf(err); class != Lost && ctx.Err() == nil {
			finished = d.rollback(ctx, tx)
			return err
		}
		return &unknownError{cause: err}
	}
	finished = true
	if err := crash.Fault("store.after_commit"); err != nil {
		return &unknownError{cause: err}
	}
	return nil
}

// commit ends a transaction.
func (d *Database) commit(ctx context.Context, tx *session) error {
	if err := tx.seen("COMMIT", false); err != nil {
		return err
	}
	if err := tx.flush(ctx, Part{Text: "COMMIT"}); err != nil {
		return err
	}
	return tx.seen("COMMIT", true)
}

// rollback ends a transaction also when its context is over; false: the connection is not clean.
func (d *Database) rollback(ctx context.Context, tx *session) bool {
	tx.later = nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_, err := tx.ExecContext(ctx, "ROLLBACK")
	return err == nil
}

// discard takes a connection out of its pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the error is the message to the pool
}

// resolve asks f what became of a COMMIT until it returns, for resolveTime.
func (d *Database) resolve(ctx context.Context, cause *unknownError, f func(ctx context.Context, tx taskstate.Tx) (bool, error)) (bool, error) {
	if f == nil {
		return false, fmt.Errorf("%w: %w", taskstate.ErrOutcomeUnknown, cause.cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTime)
	defer cancel()
	for n := 1; ; n++ {
		done := false
		err := d.once(ctx, func(ctx context.Context, tx taskstate.Tx) (bool, error) {
			var err error
			done, err = f(ctx, tx)
			return false, err
		})
		if err == nil {
			return done, nil
		}
		if rest(ctx, n) != nil {
			return false, fmt.Errorf("%w: %w", taskstate.ErrOutcomeUnknown, errors.Join(cause.cause, err))
		}
	}
}

// Read runs reading statements outside a transaction: again when a connection was dead.
func (d *Database) Read(ctx context.Context, f taskstate.ReadFunc) error {
	return d.repeat(ctx, d.backend.Reads, f)
}

// Snapshot is Read of one moment: all statements of f see what was committed when the first of them began.
func (d *Database) Snapshot(ctx context.Context, f taskstate.ReadFunc) error {
	opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if d.dialect() == SQLite {
		opts = nil // every transaction of it is one
	}
	return d.Read(ctx, func(ctx context.Context, _ taskstate.Tx) error {
		tx, err := d.backend.Reads.BeginTx(ctx, opts)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // it has read only
		return f(ctx, &session{db: d, on: tx})
	})
}

// Beat is Read on the connections that renew leases; f may write what may be written twice.
func (d *Database) Beat(ctx context.Context, f taskstate.ReadFunc) error {
	return d.repeat(ctx, d.backend.Beats, f)
}

// repeat runs statements outside a transaction that may be done twice, again when a connection was dead or a lock not to be had.
func (d *Database) repeat(ctx context.Context, on runner, f taskstate.ReadFunc) error {
	tx := &session{db: d, on: on}
	for t := (tries{}); ; {
		err := d.limited(ctx, tx, f)
		if err == nil {
			return nil
		}
		if err := d.again(ctx, "", &t, err); err != nil {
			return err
		}
	}
}

// limited is one attempt with its time limit.
func (d *Database) limited(ctx context.Context, tx taskstate.Tx, f taskstate.ReadFunc) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	err := f(ctx, tx)
	d.suspect(err)
	return err
}

// suspect gives up the unused connections when one did not answer in time, so that the next try gets a new one.
func (d *Database) suspect(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		d.backend.DropIdle()
	}
}
