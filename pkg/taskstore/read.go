package taskstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
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
	return s.readTasks(ctx, tx, len(ids), s.queries.Bind("Get", sqldb.Parts{"list": sqldb.List(ids), "scope": s.scope(scope)}))
}

// readTasks reads all rows of a query; head takes the columns that stand before the task's, the same in each row.
// Room is made for n rows at once.
func (s *Store) readTasks(ctx context.Context, tx taskstate.Tx, n int, query sqldb.Part, head ...any) ([]taskstate.Task, error) {
	r, targets := newReader(s.columns)
	targets = append(head, targets...)
	out := make([]taskstate.Task, 0, n)
	err := sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return fmt.Errorf("scan task: %w", err)
		}
		out = append(out, taskstate.Task{})
		r.put(&out[len(out)-1])
		return nil
	}, query.Text, query.Args...)
	return out, err
}

// scanTransition reads a row of TransitionColumns.
func scanTransition(rows *sql.Rows) (t taskstate.Transition, err error) {
	var from, code sql.NullString
	var lease, retry, created taskstate.DBTime
	err = rows.Scan(&t.ID, &t.TaskID, &from, &t.To, &t.Reason, &t.AttemptCount, &t.CrashCount, &t.Fence, &t.Epoch,
		&t.Actor, &t.Message, &lease, &retry, &t.Delivery, &code, &created)
	t.From, t.ErrorCode = taskstate.Status(from.String), code.String
	t.LeaseExpiresAt, t.NextRetryAt, t.CreatedAt = lease.Time, retry.Time, created.Time
	return t, err
}

// Transitions implements taskstate.Store.
func (s *Store) Transitions(ctx context.Context, scope taskstate.Scope, taskID string, after int64, limit int) ([]taskstate.Transition, error) {
	if len(storable([]string{taskID})) == 0 {
		return nil, fmt.Errorf("read log: %w", taskstate.ErrNotFound)
	}
	var out []taskstate.Transition
	err := s.ReadFor(ctx, "read log of task "+taskID, func(ctx context.Context, tx taskstate.Tx) error {
		exists := s.queries.Bind("Exists", sqldb.Parts{"scope": s.scope(scope)}, taskID)
		var one int
		if err := tx.QueryRowContext(ctx, exists.Text, exists.Args...).Scan(&one); err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				return taskstate.ErrNotFound
			}
			return err
		}
		var err error
		out, err = sqldb.Collect(ctx, tx, scanTransition, s.queries.Get("Transitions"), taskID, after, bounded(limit))
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
		query, err := withRows(s, "TransitionsOf", chunk, bounded(limit))
		if err != nil {
			return nil, err
		}
		err = s.ReadFor(ctx, "read logs", func(ctx context.Context, tx taskstate.Tx) error {
			log, err := sqldb.Collect(ctx, tx, scanTransition, query.Text, query.Args...)
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
	parts := sqldb.Parts{"scope": s.scope(scope), "base": {}}
	if base != "" {
		parts["base"] = s.queries.Part("ListBase", base)
	}
	query := s.queries.Bind("Counts", parts)
	var out map[taskstate.Status]int64
	err := s.ReadFor(ctx, "count tasks", func(ctx context.Context, tx taskstate.Tx) error {
		out = map[taskstate.Status]int64{}
		return sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
			var status taskstate.Status
			var n int64
			err := rows.Scan(&status, &n)
			out[status] = n
			return err
		}, query.Text, query.Args...)
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

// afterRow is one task of TransitionsOf.
type afterRow struct {
	ID    string `json:"id"`
	After int64  `json:"after"`
}

func (r afterRow) values() []any { return []any{r.ID, r.After} }
