package taskstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Drains implements taskstate.Store: one read by the number of the process's row.
func (s *Store) Drains(ctx context.Context, process string) (bool, error) {
	row, _ := s.workers.get(process)
	if row.no == noWorker {
		return false, nil
	}
	drains, err := sqldb.ReadRow(ctx, s, func(row sqldb.Scanner) (n int, err error) { return n, row.Scan(&n) }, s.queries.Get("WorkerDrains"), row.no)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("ask whether %s is to drain: %w", process, err)
	}
	return drains != 0, nil
}

// Drained implements taskstate.Store.
func (s *Store) Drained(ctx context.Context, process string) error {
	row, _ := s.workers.get(process)
	work := func(ctx context.Context, tx taskstate.Tx) error {
		_, err := tx.ExecContext(ctx, s.queries.Get("WorkerDrained"), row.no)
		return err
	}
	if err := s.Transact(ctx, work, func(context.Context, taskstate.Tx) (bool, error) { return false, nil }); err != nil {
		return fmt.Errorf("write that %s has drained: %w", process, err)
	}
	return nil
}

// Drain implements taskstate.Store. Done twice is as done once.
func (s *Store) Drain(ctx context.Context, process string, off bool, ago time.Duration, note taskstate.TxFunc) error {
	if !sqldb.ASCII(process) {
		return fmt.Errorf("drain %q: %w", process, taskstate.ErrNotFound)
	}
	no, err := sqldb.ReadRow(ctx, s, func(row sqldb.Scanner) (n int64, err error) { return n, row.Scan(&n) },
		s.queries.Get("WorkerNamed"), process, -ago.Microseconds())
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("drain %s: %w", process, taskstate.ErrNotFound)
	case err != nil:
		return fmt.Errorf("find the process %s: %w", process, err)
	}
	query := "WorkerDrain"
	if off {
		query = "WorkerTake"
	}
	err = s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if _, err := tx.ExecContext(ctx, s.queries.Get(query), no); err != nil || note == nil {
			return err
		}
		return note(ctx, tx, m)
	})
	if err != nil {
		return fmt.Errorf("write whether %s drains: %w", process, err)
	}
	return nil
}
