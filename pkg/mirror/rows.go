package mirror

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed sql/*.sql
var statements embed.FS

const (
	mostRows   = 500 // of one statement by ids, and of one batch of copies
	mostReason = 500 // characters of mirror_failure.reason

	leaseTime = 6 * time.Second // of the mirror that acts
)

// unfinished reports whether a task in a status has a copy.
func unfinished(s taskstate.Status) bool {
	switch s {
	case taskstate.StatusQueued, taskstate.StatusRunning, taskstate.StatusRetrying, taskstate.StatusSuspended:
		return true
	case taskstate.StatusNone, taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusCancelled:
	}
	return false
}

// state is where a task stands.
type state struct {
	id     uuid.UUID
	status taskstate.Status
}

// rows are the database as the mirror sees it.
type rows struct {
	db taskstate.Database
	q  sqldb.Queries
}

func newRows(db taskstate.Database) *rows {
	return &rows{db: db, q: sqldb.MustLoad(statements, "sql", db.Dialect())}
}

// raw is an id as states have it.
func (r *rows) raw(id uuid.UUID) any { return sqldb.RawID(r.db.Dialect(), id.String()) }

func scanState(rows *sql.Rows) (s state, err error) {
	err = rows.Scan(&s.id, &s.status)
	return s, err
}

// page returns up to n states after an id, in the order of their ids.
func (r *rows) page(ctx context.Context, after uuid.UUID, n int) ([]state, error) {
	return sqldb.ReadAll(ctx, r.db, "read states of tasks", r.q.Get("States"), []any{r.raw(after), n}, scanState)
}

// of returns the states of those tasks that have one.
func (r *rows) of(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]taskstate.Status, error) {
	out := make(map[uuid.UUID]taskstate.Status, len(ids))
	for chunk := range slices.Chunk(ids, mostRows) {
		raw := make([]any, len(chunk))
		for i, id := range chunk {
			raw[i] = r.raw(id)
		}
		query := r.q.Bind("StatesOf", sqldb.Parts{"list": sqldb.List(raw)})
		found, err := sqldb.ReadAll(ctx, r.db, "read states of tasks", query.Text, query.Args, scanState)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			out[s.id] = s.status
		}
	}
	return out, nil
}

// tasks returns those of ids that are unfinished, the oldest first.
func (r *rows) tasks(ctx context.Context, ids []uuid.UUID) ([]taskstate.Task, error) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	found, err := r.db.GetMany(ctx, taskstate.System(), texts)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(t taskstate.Task) bool { return !unfinished(t.Status) })
	slices.SortFunc(found, func(a, b taskstate.Task) int { return strings.Compare(a.ID, b.ID) })
	return found, nil
}

// failure is why a task has no copy.
type failure struct {
	id     uuid.UUID
	reason string
	tries  int
}

// putFailures writes why tasks have no copy.
func (r *rows) putFailures(ctx context.Context, failures []failure) error {
	if len(failures) == 0 {
		return nil
	}
	err := r.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		for _, f := range failures {
			if _, err := tx.ExecContext(ctx, r.q.Get("FailurePut"), f.id.String(), taskstate.Shorten(f.reason, mostReason), f.tries, m.Now, m.Now); err != nil {
				return err
			}
		}
		return nil
	})
	return wrap("write which tasks have no copy", err)
}

// removeFailures removes the rows of tasks that have a copy, or have ended.
func (r *rows) removeFailures(ctx context.Context, ids []uuid.UUID) error {
	for chunk := range slices.Chunk(ids, mostRows) {
		texts := make([]string, len(chunk))
		for i, id := range chunk {
			texts[i] = id.String()
		}
		remove := r.q.Bind("FailureRemove", sqldb.Parts{"list": sqldb.List(texts)})
		err := r.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, remove.Text, remove.Args...)
			return err
		})
		if err != nil {
			return fmt.Errorf("remove rows of tasks that have a copy: %w", err)
		}
	}
	return nil
}

// failures returns up to n tasks with a row of failure after an id. A row whose id is no task's is passed over.
func (r *rows) failures(ctx context.Context, after string, n int) (ids []uuid.UUID, last string, err error) {
	texts, err := sqldb.ReadAll(ctx, r.db, "read which tasks have no copy", r.q.Get("FailureIDs"), []any{after, n}, sqldb.Column[string])
	for _, text := range texts {
		last = text
		if id, ok := parseID(text); ok {
			ids = append(ids, id)
		}
	}
	return ids, last, err
}

// take gives the lease of the mirror that acts to one, or renews it, unless another has it; it returns who has it then.
func (r *rows) take(ctx context.Context, one string) (holder string, err error) {
	err = r.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		until := m.Now.Add(leaseTime)
		if _, err := tx.ExecContext(ctx, r.q.Get("LeaseTake"), one, until, one, m.Now, until.Add(leaseTime)); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, r.q.Get("LeaseHolder")).Scan(&holder)
	})
	return holder, wrap("take the lease of the mirror that acts", err)
}

// leave ends the lease of one, if it has it.
func (r *rows) leave(ctx context.Context, one string) error {
	err := r.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, r.q.Get("LeaseLeave"), one)
		return err
	})
	return wrap("end the lease of the mirror that acts", err)
}
