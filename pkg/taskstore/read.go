package taskstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// maxLog bounds one answer of the log.
const maxLog = 10_000

// Get implements taskstate.Store.
func (s *Store) Get(ctx context.Context, scope taskstate.Scope, id string) (taskstate.Task, error) {
	found, err := s.GetMany(ctx, scope, []string{id})
	if err != nil {
		return taskstate.Task{}, err
	}
	if len(found) == 0 {
		return taskstate.Task{}, fmt.Errorf("get task: %w", taskstate.ErrNotFound)
	}
	return found[0], nil
}

// GetMany implements taskstate.Store.
func (s *Store) GetMany(ctx context.Context, scope taskstate.Scope, ids []string) ([]taskstate.Task, error) {
	var out []taskstate.Task
	for chunk := range slices.Chunk(storable(ids), maxBatch) {
		err := s.ReadFor(ctx, "get tasks", func(ctx context.Context, tx taskstate.Tx) error {
			found, err := s.fetch(ctx, tx, scope, chunk)
			if err == nil {
				out = append(out, found...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fetch reads tasks by id.
func (s *Store) fetch(ctx context.Context, tx taskstate.Tx, scope taskstate.Scope, ids []string) ([]taskstate.Task, error) {
	list := padded(ids)
	query, args := s.scoped(s.queries.List("Get", len(list)), anys(list), scope)
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return scanTasks(rows, len(ids))
}

// Transitions implements taskstate.Store.
func (s *Store) Transitions(ctx context.Context, scope taskstate.Scope, taskID string, after int64, limit int) ([]taskstate.Transition, error) {
	if len(storable([]string{taskID})) == 0 {
		return nil, fmt.Errorf("read log: %w", taskstate.ErrNotFound)
	}
	var out []taskstate.Transition
	err := s.ReadFor(ctx, "read log of task "+taskID, func(ctx context.Context, tx taskstate.Tx) error {
		query, args := s.scoped(s.queries.Get("Exists"), []any{taskID}, scope)
		var one int
		if err := tx.QueryRowContext(ctx, query, args...).Scan(&one); err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				return taskstate.ErrNotFound
			}
			return err
		}
		rows, err := tx.QueryContext(ctx, s.queries.Get("Transitions"), taskID, after, bounded(limit))
		if err != nil {
			return err
		}
		out, err = scanTransitions(rows)
		return err
	})
	return out, err
}

// TransitionsOf implements taskstate.Store.
// limit counts rows of all tasks; ids over 500 are asked for in several statements.
func (s *Store) TransitionsOf(ctx context.Context, after map[string]int64, limit int) ([]taskstate.Transition, error) {
	batch := make([]afterRow, 0, len(after))
	for id, n := range after {
		if ascii(id, maxID) {
			batch = append(batch, afterRow{ID: id, After: n})
		}
	}
	sort.Slice(batch, func(i, j int) bool { return batch[i].ID < batch[j].ID })
	var out []taskstate.Transition
	for chunk := range slices.Chunk(batch, maxBatch) {
		query, args, err := withRows(s, "TransitionsOf", chunk)
		if err != nil {
			return nil, err
		}
		err = s.ReadFor(ctx, "read logs", func(ctx context.Context, tx taskstate.Tx) error {
			found, err := tx.QueryContext(ctx, query, append(args[:len(args):len(args)], bounded(limit))...)
			if err != nil {
				return err
			}
			log, err := scanTransitions(found)
			if err == nil {
				out = append(out, log...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out[:min(len(out), bounded(limit))], nil
}

// bounded is limit within 1 … maxLog; 0 or less asks for all that is allowed.
func bounded(limit int) int {
	if limit <= 0 {
		return maxLog
	}
	return min(limit, maxLog)
}

// Counts implements taskstate.Store. It reads an index only: the sweep's for all tasks.
func (s *Store) Counts(ctx context.Context, scope taskstate.Scope, base string) (map[taskstate.Status]int64, error) {
	query, args := s.scoped(s.queries.Get("Counts"), nil, scope)
	if base == "" {
		query = fill(query, "@base", "")
	} else {
		query, args = fill(query, "@base", s.queries.Get("ListBase")), append(args, base)
	}
	var out map[taskstate.Status]int64
	err := s.ReadFor(ctx, "count tasks", func(ctx context.Context, tx taskstate.Tx) error {
		out = map[taskstate.Status]int64{}
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // Err tells what went wrong
		for rows.Next() {
			var status taskstate.Status
			var n int64
			if err := rows.Scan(&status, &n); err != nil {
				return err
			}
			out[status] = n
		}
		return rows.Err()
	})
	return out, err
}

// Due implements taskstate.Store.
func (s *Store) Due(ctx context.Context, limit int) (n int64, oldest time.Duration, err error) {
	limit = max(limit, 1)
	err = s.ReadFor(ctx, "count due tasks", func(ctx context.Context, tx taskstate.Tx) error {
		var first, now taskstate.DBTime
		if err := tx.QueryRowContext(ctx, s.queries.Get("Due"), limit, limit, limit).Scan(&n, &first, &now); err != nil {
			return err
		}
		oldest = 0
		if !first.IsZero() {
			oldest = max(0, now.Sub(first.Time))
		}
		return nil
	})
	return n, oldest, err
}

// NextWake implements taskstate.Store.
func (s *Store) NextWake(ctx context.Context, status taskstate.Status, limit time.Duration) (time.Duration, error) {
	next := limit
	err := s.ReadFor(ctx, "find the next wake time", func(ctx context.Context, tx taskstate.Tx) error {
		var wake, now taskstate.DBTime
		err := tx.QueryRowContext(ctx, s.queries.Get("NextWake"), string(status)).Scan(&wake, &now)
		if errors.Is(err, sql.ErrNoRows) || (err == nil && wake.IsZero()) {
			return nil
		}
		if err == nil {
			next = min(limit, wake.Sub(now.Time))
		}
		return err
	})
	return next, err
}
