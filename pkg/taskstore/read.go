package taskstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/call"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
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
	for chunk := range slices.Chunk(storable(ids), statement.MaxRows) {
		query := s.queries.Bind("Get", sqldb.Parts{"list": sqldb.List(chunk), "scope": s.scope(scope)})
		found, err := read(ctx, s, "get tasks", func(ctx context.Context, tx taskstate.Tx) ([]taskstate.Task, error) {
			return s.readTasks(ctx, tx, len(chunk), query)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// read returns what f reads outside a transaction; what says in errors what was being done.
func read[T any](ctx context.Context, s *Store, what string, f func(ctx context.Context, tx taskstate.Tx) (T, error)) (T, error) {
	out, err := sqldb.Read(ctx, s, f)
	if err != nil {
		return out, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}

// readTasks reads all rows of a query; head takes the columns that stand before the task's, the same in each row.
// Room is made for n rows at once.
func (s *Store) readTasks(ctx context.Context, tx taskstate.Tx, n int, query sqldb.Part, head ...any) ([]taskstate.Task, error) {
	r, targets := newReader(s.columns, s.mysql())
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
	var from, message, delivery, code sql.NullString
	var lease, retry, created taskstate.DBTime
	err = rows.Scan(&t.ID, &t.TaskID, &from, &t.To, &t.Reason, &t.AttemptCount, &t.CrashCount, &t.Fence, &t.Epoch,
		&t.Actor, &message, &lease, &retry, &delivery, &code, &created)
	t.From, t.Message, t.Delivery, t.ErrorCode = taskstate.Status(from.String), message.String, delivery.String, code.String
	t.LeaseExpiresAt, t.NextRetryAt, t.CreatedAt = lease.Time, retry.Time, created.Time
	return t, err
}

// Transitions implements taskstate.Store.
func (s *Store) Transitions(ctx context.Context, scope taskstate.Scope, taskID string, after int64, limit int) ([]taskstate.Transition, error) {
	if len(storable([]string{taskID})) == 0 {
		return nil, fmt.Errorf("read log: %w", taskstate.ErrNotFound)
	}
	exists := s.queries.Bind("Exists", sqldb.Parts{"scope": s.scope(scope)}, taskID)
	return read(ctx, s, "read log of task "+taskID, func(ctx context.Context, tx taskstate.Tx) ([]taskstate.Transition, error) {
		var one int
		err := tx.QueryRowContext(ctx, exists.Text, exists.Args...).Scan(&one)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil, taskstate.ErrNotFound
		case err != nil:
			return nil, err
		}
		return sqldb.Collect(ctx, tx, scanTransition, s.queries.Get("Transitions"), taskID, after, bounded(limit))
	})
}

// TransitionsOf implements taskstate.Store.
// limit counts rows of all tasks; ids over 500 are asked for in several statements.
func (s *Store) TransitionsOf(ctx context.Context, after map[string]int64, limit int) ([]taskstate.Transition, error) {
	var batch [][]any
	for _, id := range storable(slices.Sorted(maps.Keys(after))) {
		batch = append(batch, []any{id, after[id]})
	}
	var out []taskstate.Transition
	for chunk := range slices.Chunk(batch, statement.MaxRows) {
		query := s.withRows("TransitionsOf", []string{"id", "after"}, chunk, bounded(limit))
		log, err := sqldb.ReadAll(ctx, s, "read logs", query.Text, query.Args, scanTransition)
		if err != nil {
			return nil, err
		}
		out = append(out, log...)
	}
	slices.SortFunc(out, func(x, y taskstate.Transition) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.TaskID, y.TaskID))
	})
	return out[:min(len(out), bounded(limit))], nil
}

// CallNumbers implements taskstate.Reader.
func (s *Store) CallNumbers(ctx context.Context, spans []taskstate.Span, limit int) ([]int64, error) {
	if len(spans) == 0 {
		return nil, nil
	}
	var args []any
	for _, one := range spans {
		args = append(args, one.First, one.Last)
	}
	return sqldb.ReadAll(ctx, s, "read numbers of calls", s.queries.Any("CallsIn", len(spans)), append(args, limit), sqldb.Column[int64])
}

// FirstCall implements taskstate.Reader.
func (s *Store) FirstCall(ctx context.Context, at time.Time) (no int64, err error) {
	found, err := sqldb.ReadAll(ctx, s, "look for a call", s.queries.Get("FirstCall"), []any{at.UTC()}, sqldb.Column[int64])
	if len(found) > 0 {
		no = found[0]
	}
	return no, err
}

// Changes implements taskstate.Reader.
func (s *Store) Changes(ctx context.Context, calls []int64) (out []taskstate.Transition, err error) {
	var changes []any // a task and a call each
	for some := range slices.Chunk(calls, statement.MaxRows) {
		query := s.queries.Bind("TasksOfCalls", sqldb.Parts{"list": sqldb.List(some)})
		found, err := sqldb.ReadAll(ctx, s, "read calls", query.Text, query.Args, call.Scan)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			for _, id := range statement.RawIDs(s.Dialect(), slices.Sorted(slices.Values(c.IDs))) {
				changes = append(changes, id, c.No)
			}
		}
	}
	for some := range slices.Chunk(changes, 2*statement.MaxRows) {
		found, err := sqldb.ReadAll(ctx, s, "read what calls wrote", s.queries.Any("Changes", len(some)/2), some, scanTransition)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// bounded is limit within 1 … maxLog; 0 or less asks for all that is allowed.
func bounded(limit int) int {
	if limit <= 0 {
		return maxLog
	}
	return min(limit, maxLog)
}

// Due implements taskstate.Store. QUEUED tasks can start whatever their wake time says; the others once it has come. Calls that
// wake no longer are counted on the way.
func (s *Store) Due(ctx context.Context, limit int) (n int64, oldest time.Duration, err error) {
	if err := s.calls().CountEnded(ctx); err != nil {
		return 0, 0, err
	}
	if n, err = s.queued(ctx, int64(limit)); err != nil {
		return 0, 0, err
	}
	for _, w := range []call.Wake{
		{Status: taskstate.StatusDead, Limit: 1}, {Status: taskstate.StatusQueued, In: far, Limit: 1},
		{Status: taskstate.StatusRetrying, Limit: limit}, {Status: taskstate.StatusRunning, Limit: limit},
	} {
		found, err := s.calls().Due(ctx, w)
		if err != nil {
			return 0, 0, err
		}
		if len(found.Tasks) == 0 || w.Status == taskstate.StatusDead { // its calls are counted on the way
			continue
		}
		oldest = max(oldest, found.Now.Sub(found.Tasks[0].Wakes))
		if w.Status != taskstate.StatusQueued {
			n += int64(len(found.Tasks))
		}
	}
	return n, oldest, nil
}

// queued counts tasks that are QUEUED, at most limit: no more calls that wake are read than that takes.
func (s *Store) queued(ctx context.Context, limit int64) (n int64, err error) {
	err = s.Snapshot(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		if err := tx.QueryRowContext(ctx, s.queries.Get("QueuedBeside")).Scan(&n); err != nil {
			return err
		}
		last, read := call.Call{At: call.Beginning}, 0
		for size := 4 * call.FirstPage; n < limit; size = min(4*size, maxLog) {
			read = 0
			if err := sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
				var at taskstate.DBTime
				var tasks int64
				err := rows.Scan(&last.No, &at, &tasks)
				last.At, n, read = at.Time, n+tasks, read+1
				return err
			}, s.queries.Get("QueuedCalls"), last.At, last.At, last.No, size); err != nil {
				return err
			}
			if read < size {
				break
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count QUEUED tasks: %w", err)
	}
	return max(0, min(n, limit)), nil
}

// NextWake implements taskstate.Store. A call whose tasks do not wake yet is moved on the way.
func (s *Store) NextWake(ctx context.Context, status taskstate.Status, limit time.Duration) (time.Duration, error) {
	found, err := s.calls().Due(ctx, call.Wake{Status: status, Limit: 1})
	if err != nil {
		return 0, err
	}
	if len(found.Tasks) > 0 {
		return min(limit, found.Tasks[0].Wakes.Sub(found.Until)), nil
	}
	next, err := sqldb.ReadAll(ctx, s, "find the next wake time", s.queries.Get("Waking"), []any{string(status), call.Beginning, call.Beginning, 0, 1}, call.Scan)
	if err != nil || len(next) == 0 {
		return limit, err
	}
	return min(limit, next[0].At.Sub(next[0].Now)), nil
}

// Pace implements taskstate.Reader.
func (s *Store) Pace(ctx context.Context, scope taskstate.Scope, base string, ago time.Duration) (taskstate.Pace, error) {
	of := call.Whose{User: userOf(scope), Base: base}
	among := &filters{}
	if of.User != "" {
		among.add(s.queries.Get("OfUser"), of.User)
	}
	if base != "" {
		among.add(s.queries.Get("ListBase"), base)
	}
	named, perhaps := sqldb.Part{}, sqldb.Part{}
	if of != (call.Whose{}) {
		text, err := of.Named()
		if err != nil {
			return taskstate.Pace{}, err
		}
		named, perhaps = s.queries.Part("OwnersNamed", likePattern(text)), s.queries.Part("OwnersMayName", likePattern(text))
	}
	return s.calls().Pace(ctx, of, named, perhaps, among.part(), ago)
}

// Past implements taskstate.Reader.
func (s *Store) Past(ctx context.Context, from, to time.Time) (taskstate.Past, error) {
	return s.calls().Past(ctx, from, to)
}

// Workers implements taskstate.Reader.
func (s *Store) Workers(ctx context.Context, ago time.Duration, limit int) ([]taskstate.Worker, error) {
	return sqldb.ReadAll(ctx, s, "list workers", s.queries.Get("Workers"), []any{-ago.Microseconds(), limit}, func(rows *sql.Rows) (w taskstate.Worker, err error) {
		var started, lease, drain, drained taskstate.DBTime
		var alive int
		err = rows.Scan(&w.Name, &started, &lease, &alive, &w.Slots, &drain, &drained)
		w.StartedAt, w.LeaseUntil, w.Alive, w.DrainAt, w.DrainedAt = started.Time, lease.Time, alive != 0, drain.Time, drained.Time
		return w, err
	})
}
