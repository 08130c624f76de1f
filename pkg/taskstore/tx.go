package taskstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/sqldb"
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

// errConflict says that a locked row was not as it was read: it cannot happen, and the transaction is run again.
var errConflict = errors.New("rows changed under their locks")

// unknownError says that a COMMIT got no answer.
type unknownError struct{ cause error }

func (e *unknownError) Error() string { return "commit without an answer: " + e.cause.Error() }
func (e *unknownError) Unwrap() error { return e.cause }

// runner is a pool or one connection of it.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// session is the taskstate.Tx of hooks and of the store itself: it fits placeholders and arguments to the dialect.
type session struct {
	store *Store
	on    runner
}

// ExecContext implements taskstate.Tx.
func (t *session) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.seen(query, false); err != nil {
		return nil, err
	}
	span := t.statement(ctx, query)
	res, err := t.on.ExecContext(ctx, sqldb.Rebind(t.store.backend.Dialect, query), t.args(args)...)
	if span != nil {
		rowsWritten(span, res, err)
	}
	if err == nil {
		err = t.seen(query, true)
	}
	if err != nil && t.store.classOf(err) == sqldb.Unique {
		err = fmt.Errorf("%w: %w", taskstate.ErrUnique, err)
	}
	return res, err
}

// QueryContext implements taskstate.Tx.
func (t *session) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.seen(query, false); err != nil {
		return nil, err
	}
	span := t.statement(ctx, query)
	rows, err := t.on.QueryContext(ctx, sqldb.Rebind(t.store.backend.Dialect, query), t.args(args)...)
	if span != nil { // the time to the first row; the rest comes as it is read
		endSpan(span, err)
	}
	return rows, err
}

// QueryRowContext implements taskstate.Tx.
func (t *session) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	_ = t.seen(query, false) // a Row cannot carry it; only Exec and Query are made to fail
	span := t.statement(ctx, query)
	row := t.on.QueryRowContext(ctx, sqldb.Rebind(t.store.backend.Dialect, query), t.args(args)...)
	if span != nil {
		endSpan(span, row.Err())
	}
	return row
}

// seen tells the test's watch.
func (t *session) seen(query string, done bool) error {
	if t.store.watch == nil {
		return nil
	}
	return t.store.watch(query, done)
}

// args fits arguments to the driver; the caller's slice stays as it is.
func (t *session) args(args []any) []any {
	fit := t.store.backend.Arg
	if fit == nil {
		return args
	}
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = fit(a)
	}
	return out
}

// workFunc is the inside of a transaction; commit false rolls it back although nothing went wrong.
type workFunc func(ctx context.Context, tx *session) (commit bool, err error)

// resolveFunc finds out, after a COMMIT without an answer, whether it was done; it runs in a transaction
// of its own that is rolled back, and must wait for the end of the one before by locking its rows.
type resolveFunc func(ctx context.Context, tx *session) (done bool, err error)

// transact runs work in a transaction until it is committed, refused or hopeless; op is its span.
// resolve nil: a COMMIT without an answer ends in taskstate.ErrOutcomeUnknown.
func (s *Store) transact(ctx context.Context, op operation, what string, work workFunc, resolve resolveFunc) (err error) {
	ctx, end := s.traced(ctx, op)
	defer func() { end(err) }()
	for t := (tries{}); ; {
		err := s.once(ctx, work)
		if err == nil {
			return nil
		}
		var unknown *unknownError
		if errors.As(err, &unknown) {
			done, serr := s.resolve(ctx, unknown, resolve)
			if done || serr != nil {
				return wrap(what, serr)
			}
		}
		if err := s.again(ctx, what, &t, err); err != nil {
			return err
		}
	}
}

// tries counts what was tried again.
type tries struct{ retries, lost int }

// again decides after a failure: nil, after a pause, to try once more; else the error to give up with.
func (s *Store) again(ctx context.Context, what string, t *tries, err error) error {
	class := s.classOf(err)
	switch {
	case ctx.Err() != nil:
		return wrap(what, s.ended(ctx, err))
	case class == sqldb.Retry && t.retries < maxRetries:
		t.retries++
	case class == sqldb.Lost && t.lost < maxReconnects:
		t.lost++
	case class == sqldb.Lost, class == sqldb.Retry:
		return wrap(what, fmt.Errorf("%w: %w", errUnavailable, err))
	default:
		return wrap(what, err)
	}
	if err := pause(ctx, t.retries+t.lost); err != nil {
		return wrap(what, s.ended(ctx, err))
	}
	return nil
}

// sqlClass is the class of an error that came from a database, not from Go code alone.
func (s *Store) sqlClass(err error) (class sqldb.Class, known bool) {
	return s.classOf(err), s.backend.Known(err)
}

// wrap says what was being done, if there is a word for it; nil stays nil.
func wrap(what string, err error) error {
	if err == nil || what == "" {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// classOf is the backend's word, with the store's own errors.
func (s *Store) classOf(err error) sqldb.Class {
	switch {
	case errors.Is(err, errConflict):
		return sqldb.Retry
	case errors.Is(err, context.DeadlineExceeded):
		return sqldb.Lost // the attempt's own time limit: the caller's is looked at first
	}
	return s.backend.ClassOf(err)
}

// ended is the error of a call whose context is over: a database that used up its time counts as one that does not answer.
func (s *Store) ended(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w (%w)", errUnavailable, ctx.Err(), err)
	}
	return fmt.Errorf("%w (%w)", ctx.Err(), err)
}

// pause waits before the n-th retry, with jitter, or until ctx ends.
func pause(ctx context.Context, n int) error {
	wait := min(firstRetryWait<<min(n, 16), lastRetryWait)
	wait = wait/2 + rand.N(wait/2+1)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// once runs work in one transaction on one connection.
func (s *Store) once(ctx context.Context, work workFunc) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	defer func() { s.suspect(err) }()
	conn, err := s.backend.Tx.Conn(ctx)
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
	tx := &session{store: s, on: conn}
	if s.backend.Begin != "" {
		if _, err := tx.ExecContext(ctx, s.backend.Begin); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
	}
	commit, err := work(ctx, tx)
	if err == nil && commit {
		err = crash.Fault("store.before_commit")
	}
	if err != nil || !commit {
		finished = s.rollback(ctx, tx)
		return err
	}
	if err := s.commit(ctx, tx, conn); err != nil {
		if class := s.classOf(err); class != sqldb.Lost && ctx.Err() == nil {
			finished = s.rollback(ctx, tx)
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
func (s *Store) commit(ctx context.Context, tx *session, conn *sql.Conn) error {
	if s.backend.Commit == nil {
		_, err := tx.ExecContext(ctx, "COMMIT")
		return err
	}
	if err := tx.seen("COMMIT", false); err != nil {
		return err
	}
	if err := s.backend.Commit(ctx, conn); err != nil {
		return err
	}
	return tx.seen("COMMIT", true)
}

// rollback ends a transaction also when its context is over; false: the connection is not clean.
func (s *Store) rollback(ctx context.Context, tx *session) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_, err := tx.ExecContext(ctx, "ROLLBACK")
	return err == nil
}

// discard takes a connection out of its pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the error is the message to the pool
}

// resolve asks settle until it answers, for resolveTime.
func (s *Store) resolve(ctx context.Context, cause *unknownError, resolve resolveFunc) (bool, error) {
	if resolve == nil {
		return false, fmt.Errorf("%w: %w", taskstate.ErrOutcomeUnknown, cause.cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTime)
	defer cancel()
	for n := 1; ; n++ {
		done := false
		err := s.once(ctx, func(ctx context.Context, tx *session) (bool, error) {
			var err error
			done, err = resolve(ctx, tx)
			return false, err
		})
		if err == nil {
			return done, nil
		}
		if pause(ctx, n) != nil {
			return false, fmt.Errorf("%w: %w", taskstate.ErrOutcomeUnknown, errors.Join(cause.cause, err))
		}
	}
}

// read runs reading statements outside a transaction.
func (s *Store) read(ctx context.Context, what string, f func(ctx context.Context, tx *session) error) error {
	return s.repeat(ctx, what, s.backend.Reads, f)
}

// repeat runs statements outside a transaction that may be done twice, again when a connection was dead or a lock not to be had.
func (s *Store) repeat(ctx context.Context, what string, on runner, f func(ctx context.Context, tx *session) error) error {
	tx := &session{store: s, on: on}
	for t := (tries{}); ; {
		err := s.limited(ctx, tx, f)
		if err == nil {
			return nil
		}
		if err := s.again(ctx, what, &t, err); err != nil {
			return err
		}
	}
}

// limited is one attempt with its time limit.
func (s *Store) limited(ctx context.Context, tx *session, f func(ctx context.Context, tx *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := f(ctx, tx)
	s.suspect(err)
	return err
}

// suspect gives up the unused connections when one did not answer in time, so that the next try gets a new one.
func (s *Store) suspect(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		s.backend.DropIdle()
	}
}
