package ingesttest

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// MeteredStore is a Store that counts what the application asks of it, by the call's name.
// Begin, commit and what the store adds of its own count in no name.
type MeteredStore struct {
	taskstate.Database
	Calls, Statements map[string]int
	Mu                *sync.Mutex
	Takes             time.Duration // each call
}

// called counts a call, which takes its time.
func (s MeteredStore) called(call string) {
	s.count(s.Calls, call)
	if s.Takes > 0 {
		<-time.After(s.Takes)
	}
}

func (s MeteredStore) count(counts map[string]int, call string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	counts[call]++
}

func (s MeteredStore) Reset() {
	clear(s.Calls)
	clear(s.Statements)
}

// meteredTx counts statements under its call's name.
type meteredTx struct {
	taskstate.Tx
	count func()
}

func (t meteredTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.count()
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t meteredTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.count()
	return t.Tx.QueryContext(ctx, query, args...)
}

func (t meteredTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.count()
	return t.Tx.QueryRowContext(ctx, query, args...)
}

func (s MeteredStore) tx(call string, tx taskstate.Tx) taskstate.Tx {
	return meteredTx{tx, func() { s.count(s.Statements, call) }}
}

func (s MeteredStore) Read(ctx context.Context, f taskstate.ReadFunc) error {
	s.called("read")
	return s.Database.Read(ctx, func(ctx context.Context, db taskstate.Tx) error { return f(ctx, s.tx("read", db)) })
}

func (s MeteredStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	s.called("tx")
	return s.Database.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		return f(ctx, s.tx("tx", tx), m)
	})
}

func (s MeteredStore) WithClaims(ctx context.Context, claims []taskstate.ClaimedTask, f taskstate.ClaimsFunc) error {
	s.called("hold")
	return s.Database.WithClaims(ctx, claims, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, held []bool) error {
		return f(ctx, s.tx("hold", tx), m, held)
	})
}
