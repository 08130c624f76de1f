package taskstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/call"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// Apply implements taskstate.Store.
// Batches of more than 500 tasks are several transactions. When one of several fails, or a row fails alone,
// its Outcome.Err says so and the call's error is nil; a batch of which nothing was written returns the error itself.
func (s *Store) Apply(ctx context.Context, b taskstate.Batch) ([]taskstate.Outcome, error) {
	if err := checkIDs(b.IDs); err != nil {
		return nil, err
	}
	var out []taskstate.Outcome
	for chunk := range slices.Chunk(b.IDs, statement.MaxRows) {
		outcomes, err := s.applyChunk(ctx, chunk, b)
		if err != nil {
			if len(out) == 0 {
				return nil, err
			}
			outcomes = make([]taskstate.Outcome, len(chunk))
			for i, id := range chunk {
				outcomes[i] = failed(id, err)
			}
		}
		if outcomes = inOrder(chunk, outcomes); len(chunk) == len(b.IDs) {
			return outcomes, nil
		}
		out = append(out, outcomes...)
	}
	return out, nil
}

// inOrder puts outcomes into the order of ids; a row that has none was not there.
func inOrder(ids []string, outcomes []taskstate.Outcome) []taskstate.Outcome {
	if slices.EqualFunc(ids, outcomes, func(id string, o taskstate.Outcome) bool { return id == o.TaskID }) {
		return outcomes
	}
	place := make(map[string]int, len(outcomes))
	for i := range outcomes {
		place[outcomes[i].TaskID] = i
	}
	out := make([]taskstate.Outcome, len(ids))
	for i, id := range ids {
		if at, ok := place[id]; ok {
			out[i] = outcomes[at]
		} else {
			out[i].Decision = taskstate.Decision{TaskID: id, Answer: taskstate.AnswerSkipped}
		}
	}
	return out
}

// failed is the outcome of a row whose change could not be written.
func failed(id string, err error) taskstate.Outcome {
	return taskstate.Outcome{Decision: taskstate.Decision{TaskID: id, Answer: taskstate.AnswerKept}, Err: err}
}

// checkIDs refuses a list that names a task twice or an id that is none.
func checkIDs(ids []string) error {
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		if _, twice := seen[id]; twice {
			return fmt.Errorf("apply: %w: task %s stands twice in the batch", ErrInvalid, id)
		}
		seen[id] = struct{}{}
	}
	return nil
}

// applyChunk runs one transaction, and one a row when it fails for a row's sake.
func (s *Store) applyChunk(ctx context.Context, ids []string, b taskstate.Batch) ([]taskstate.Outcome, error) {
	ids = storable(ids)
	if len(ids) == 0 {
		return nil, nil
	}
	run := &batch{store: s, decide: b.Decide, onTransition: b.OnTransition}
	held := b.Held
	run.lock = func(ctx context.Context, tx taskstate.Tx) (taskstate.DBClock, []taskstate.Task, error) {
		if run.held = len(held) == len(ids); run.held {
			tasks := held
			held = nil // another try reads them
			m, err := s.ClockIn(ctx, tx)
			return m, tasks, err
		}
		return s.lockIDs(ctx, tx, ids, b.Scope)
	}
	err := run.run(ctx, "apply", len(ids), "apply to "+subject(ids))
	if err == nil {
		return run.outcomes(), nil
	}
	if len(ids) == 1 || !s.splits(ctx, err) {
		return nil, err
	}
	return s.singly(ctx, ids, b), nil
}

// singly applies b to one task at a time, so that one bad row fails alone (design D9).
func (s *Store) singly(ctx context.Context, ids []string, b taskstate.Batch) []taskstate.Outcome {
	var out []taskstate.Outcome
	for _, id := range ids {
		one, err := s.applyChunk(ctx, []string{id}, b)
		if err != nil {
			one = []taskstate.Outcome{failed(id, err)}
		}
		out = append(out, one...)
	}
	return out
}

// storable leaves out what can be no task's id. Such a text came from outside, and a comparison with it may be an error in one
// dialect and none in another.
func storable(ids []string) []string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		if isUUID(id) {
			out = append(out, id)
		}
	}
	return out
}

// isUUID reports whether text is a UUID as tasks have it: 36 characters, lower case.
func isUUID(text string) bool {
	u, err := uuid.Parse(text)
	return err == nil && u.String() == text
}

// rawIDs are ids as the narrow tables keep them.
func (s *Store) rawIDs(ids []string) []any {
	return statement.RawIDs(s.Dialect(), ids)
}

// calls are those of the store.
func (s *Store) calls() call.Store { return call.Store{Database: s.Database, Queries: s.queries} }

// subject names the tasks of a batch in an error.
func subject(ids []string) string {
	if len(ids) == 1 {
		return "task " + ids[0]
	}
	return fmt.Sprintf("%d tasks from %s on", len(ids), ids[0])
}

// lockIDs locks tasks in id order.
func (s *Store) lockIDs(ctx context.Context, tx taskstate.Tx, ids []string, scope taskstate.Scope) (taskstate.DBClock, []taskstate.Task, error) {
	return s.lockRows(ctx, tx, len(ids), s.queries.Bind("Lock", sqldb.Parts{"list": sqldb.List(s.rawIDs(ids)), "scope": s.scope(scope)}))
}

// lockRows runs a locking statement whose rows, at most n, begin with clock, epoch and Moved. It runs it once more where a row was changed
// while it waited: so it returns bodies, clock and epoch of a time at which it had the locks. It reads states as they are kept: who owns one,
// and until when, is asked for where one has an owner. To say it in the statement itself took MariaDB a third of the time that it took for one
// task.
func (s *Store) lockRows(ctx context.Context, tx taskstate.Tx, n int, lock sqldb.Part) (taskstate.DBClock, []taskstate.Task, error) {
	var m taskstate.DBClock
	for {
		var now taskstate.DBTime
		var moved either
		tasks, err := s.readTasks(ctx, tx, n, lock, &now, &m.Epoch, &moved)
		if err != nil {
			return m, nil, fmt.Errorf("lock tasks: %w", err)
		}
		if !moved {
			m.Now = now.Time
			return m, tasks, s.ownersOf(ctx, tx, tasks)
		}
	}
}

// either is whether a column of any row scanned is true.
type either bool

// Scan implements sql.Scanner.
func (e *either) Scan(value any) error {
	var one sql.NullBool
	err := one.Scan(value)
	*e = *e || either(one.Bool)
	return err
}

// scope is the owner's predicate.
func (s *Store) scope(scope taskstate.Scope) sqldb.Part {
	if scope.All() {
		return sqldb.Part{}
	}
	return s.queries.Part("OfUser", scope.UserID)
}

// Sweep implements taskstate.Store. What it found without a lock it locks where it still wakes; where others have locked all of
// that, it looks for more.
func (s *Store) Sweep(ctx context.Context, w taskstate.Sweep) ([]taskstate.Outcome, error) {
	if w.Limit <= 0 {
		return nil, nil
	}
	look := call.Wake{
		Status: w.Status, Before: w.Before.UTC().Truncate(time.Microsecond), In: time.Duration(boundedMicros(w.WakeBefore.In)) * time.Microsecond,
		Limit: min(w.Limit, statement.MaxRows), Exclude: storable(w.Exclude),
	}
	for {
		found, err := s.calls().Due(ctx, look)
		if err != nil || len(found.Tasks) == 0 {
			return nil, err
		}
		ids := make([]string, len(found.Tasks))
		for i, t := range found.Tasks {
			ids[i] = t.ID
		}
		outs, err := s.sweep(ctx, w, ids, found.Until)
		if err != nil || len(outs) > 0 || len(ids) < look.Limit {
			return outs, err
		}
		look.Exclude = append(look.Exclude, ids...)
	}
}

// sweep applies a sweep to what it found.
func (s *Store) sweep(ctx context.Context, w taskstate.Sweep, ids []string, until time.Time) ([]taskstate.Outcome, error) {
	lock := s.queries.Bind("Sweep", sqldb.Parts{"list": sqldb.List(s.rawIDs(ids))}, string(w.Status), until)
	run := &batch{store: s, decide: w.Decide, onTransition: w.OnTransition}
	run.lock = func(ctx context.Context, tx taskstate.Tx) (taskstate.DBClock, []taskstate.Task, error) {
		m, tasks, err := s.lockRows(ctx, tx, len(ids), lock)
		if err == nil && w.Status == taskstate.StatusRunning {
			tasks, err = s.lapsed(ctx, tx, tasks, until)
		}
		slices.SortFunc(tasks, func(a, b task) int {
			return cmp.Or(a.WakeAt.Compare(b.WakeAt), a.UpdatedAt.Compare(b.UpdatedAt), cmp.Compare(a.ID, b.ID))
		})
		return m, tasks, err
	}
	err := run.run(ctx, "sweep", 0, "sweep "+string(w.Status))
	if err == nil {
		return run.outcomes(), nil
	}
	if len(run.tasks) < 2 || !s.splits(ctx, err) {
		return nil, err
	}
	var out []taskstate.Outcome
	for _, t := range run.tasks {
		one, err := s.sweep(ctx, w, []string{t.ID}, until)
		if err != nil {
			one = []taskstate.Outcome{failed(t.ID, err)}
		}
		out = append(out, one...)
	}
	return out, nil
}

// lapsed leaves out claims of processes whose lease does not end before a moment, or which renew it just now. It locks the processes' rows: none
// of them renews its lease before the transaction has ended. A claim whose process has no row has ended.
func (s *Store) lapsed(ctx context.Context, tx taskstate.Tx, tasks []taskstate.Task, until time.Time) ([]taskstate.Task, error) {
	var held []string
	for _, t := range tasks {
		if t.LeaseOwner != "" {
			held = append(held, t.ID)
		}
	}
	if len(held) == 0 {
		return tasks, nil
	}
	query := s.queries.Bind("Lapsed", sqldb.Parts{"list": sqldb.List(s.rawIDs(held))}, until)
	lapsed, err := sqldb.Texts(ctx, tx, query.Text, query.Args...)
	if err != nil {
		return nil, fmt.Errorf("lock whose lease has ended: %w", err)
	}
	slices.Sort(lapsed)
	return slices.DeleteFunc(tasks, func(t taskstate.Task) bool {
		_, has := slices.BinarySearch(lapsed, t.ID)
		return t.LeaseOwner != "" && !has
	}), nil
}
