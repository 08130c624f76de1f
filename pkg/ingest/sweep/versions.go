package sweep

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/internal/dbq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// dueVersion is a version that the sweeper must look at.
type dueVersion struct {
	id, document, base, task string
	state                    catalog.VersionState
}

// sweepVersions cancels outdated uploads' tasks and removes the rows of closed versions, with their vectors marked to be deleted.
func (a *Sweeper) sweepVersions(ctx context.Context, s *Swept) error {
	for range sweepTurns {
		now, err := a.cat.Moment(ctx)
		if err != nil {
			return err
		}
		due, err := a.dueVersions(ctx, now)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := a.cancelOutdated(ctx, due, s); err != nil {
			return err
		}
		for _, v := range due {
			if v.state == catalog.VersionBuilding {
				continue
			}
			if err := a.sweepClosed(ctx, v, s); err != nil {
				return fmt.Errorf("version %s: %w", v.id, err)
			}
		}
		if len(due) < sweepBatch {
			return nil
		}
	}
	return nil
}

// dueVersions reads a page of versions whose time has come.
func (a *Sweeper) dueVersions(ctx context.Context, now time.Time) ([]dueVersion, error) {
	return dbq.Collect(ctx, a.d.Store, "look for due versions", a.q.Get("VersionsDue"), []any{now, sweepBatch}, func(rows *sql.Rows) (dueVersion, error) {
		var v dueVersion
		return v, rows.Scan(&v.id, &v.document, &v.base, &v.state, &v.task)
	})
}

// cancelOutdated cancels the open tasks of BUILDING versions that a later upload's visible version outdates (contract §2).
func (a *Sweeper) cancelOutdated(ctx context.Context, due []dueVersion, s *Swept) error {
	var tasks []string
	seen := map[string]bool{}
	for _, v := range due {
		if v.state == catalog.VersionBuilding && !seen[v.task] {
			seen[v.task] = true
			tasks = append(tasks, v.task)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	outcomes, err := a.d.Store.Apply(ctx, taskstate.Batch{
		IDs: tasks, Scope: taskstate.System(), OnTransition: a.cat.OnTransition,
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, locked []taskstate.Task) ([]taskstate.Decision, error) {
			return a.outdatedDecisions(ctx, tx, m, locked)
		},
	})
	if err != nil {
		return fmt.Errorf("cancel outdated tasks: %w", err)
	}
	crash.Point("gc.after_cancel")
	a.deliver.AnnounceChanges(ctx, outcomes)
	for _, o := range outcomes {
		if o.Answer == taskstate.AnswerApplied {
			s.Cancelled++
		}
	}
	return a.lookedAt(ctx, due, catalog.VersionBuilding)
}

// outdatedDecisions cancels those of the locked tasks whose open version is outdated.
func (a *Sweeper) outdatedDecisions(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	documents, err := a.cat.LockDocumentsOf(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	open, err := a.cat.OpenVersions(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]taskstate.Decision, len(tasks))
	for i, t := range tasks {
		out[i] = taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
		v, isOpen := open[t.ID]
		if d, found := documents[v.Document]; isOpen && found && d.VisibleUpload > v.Upload {
			out[i] = taskstate.Cancel(m, t, sweeperActor(), taskstate.ReasonSuperseded, "a later upload is visible")
		}
	}
	return out, nil
}

// sweeperActor is the audit's name of the sweeper.
func sweeperActor() taskstate.Actor {
	return taskstate.Actor{Kind: taskstate.ActorSystem, Name: "sweeper"}
}

// lookedAt takes versions off the sweep's list that are still in the state in which they were found.
func (a *Sweeper) lookedAt(ctx context.Context, due []dueVersion, state catalog.VersionState) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		for _, v := range due {
			if v.state != state {
				continue
			}
			if _, err := tx.ExecContext(ctx, a.q.Get("VersionSweepAt"), catalog.Never(), v.id, string(state)); err != nil {
				return fmt.Errorf("version %s was looked at: %w", v.id, err)
			}
		}
		return nil
	})
}

// sweepClosed removes a closed version's rows in bounded transactions and lets its stored file go if no replay can want it.
func (a *Sweeper) sweepClosed(ctx context.Context, v dueVersion, s *Swept) error {
	for {
		n, err := a.markRows(ctx, v.document, v.base, func(ctx context.Context, tx taskstate.Tx) ([]catalog.NamedRow, error) {
			var state string
			if err := tx.QueryRowContext(ctx, a.q.Get("VersionClosed"), v.id).Scan(&state); err != nil {
				return nil, err
			}
			if st := catalog.VersionState(state); st != catalog.VersionSuperseded && st != catalog.VersionAbandoned {
				return nil, nil // cannot be: both states are final
			}
			return readNamed(ctx, tx, a.q.Get("ClosedRows"), v.id, rowsSwept)
		})
		if err != nil {
			return err
		}
		if n < rowsSwept {
			break
		}
	}
	if err := a.unlinkOutdated(ctx, v.document, s); err != nil {
		return err
	}
	s.Versions++
	return a.lookedAt(ctx, []dueVersion{v}, v.state)
}

// markRows removes the rows that read answers, under the document's lock. Vectors of theirs that no open or visible version holds,
// and whose birth is closed, are marked for deletion in the same transaction: from now on SQL names them as garbage.
func (a *Sweeper) markRows(ctx context.Context, document, base string, read func(context.Context, taskstate.Tx) ([]catalog.NamedRow, error)) (int, error) {
	n := 0
	err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		n = 0
		if _, err := a.cat.LockDocuments(ctx, tx, []string{document}); err != nil {
			return err
		}
		rows, err := read(ctx, tx)
		if err != nil {
			return fmt.Errorf("read rows to sweep: %w", err)
		}
		for from := 0; from < len(rows); from += catalog.PageSize {
			if err := a.markPage(ctx, tx, document, base, rows[from:min(len(rows), from+catalog.PageSize)], m.Now); err != nil {
				return err
			}
		}
		n = len(rows)
		return nil
	})
	if n > 0 && err == nil {
		err = crash.Fault("gc.after_mark")
	}
	return n, err
}

// markPage removes one page of rows: free vectors are marked, those of a version that is still open are only named.
func (a *Sweeper) markPage(ctx context.Context, tx taskstate.Tx, document, base string, rows []catalog.NamedRow, now time.Time) error {
	ids := make([]any, len(rows))
	for i, n := range rows {
		ids[i] = n.Id
	}
	if _, err := tx.ExecContext(ctx, a.q.List("RowsDelete", len(rows)), ids...); err != nil {
		return fmt.Errorf("remove swept rows: %w", err)
	}
	free, open, err := a.judgeVectors(ctx, tx, rows)
	if err != nil {
		return err
	}
	if len(free) > 0 {
		params := make([]any, 0, len(free)*6)
		for _, n := range free {
			params = append(params, n.Vector, base, document, n.Birth, now, now)
		}
		if _, err := tx.ExecContext(ctx, a.q.Rows("GarbageMark", len(free)), params...); err != nil {
			return fmt.Errorf("mark vectors: %w", err)
		}
	}
	return a.cat.DropRows(ctx, tx, base, document, open, now.Add(stillOpen))
}

// judgeVectors sorts vectors that lost a row: free ones may be deleted, open ones belong to a BUILDING version,
// and those that a row of an open or visible version still names are in neither. The document must be locked.
func (a *Sweeper) judgeVectors(ctx context.Context, tx taskstate.Tx, rows []catalog.NamedRow) (free, open []catalog.NamedRow, err error) {
	vectors := make([]string, 0, len(rows))
	births := make([]string, 0, len(rows))
	once := map[string]bool{}
	for _, n := range rows {
		vectors = append(vectors, n.Vector)
		if !once[n.Birth] {
			once[n.Birth] = true
			births = append(births, n.Birth)
		}
	}
	held, err := a.cat.Set(ctx, tx, "IdsHeld", vectors)
	if err != nil {
		return nil, nil, fmt.Errorf("look who holds vectors: %w", err)
	}
	building, err := a.cat.Set(ctx, tx, "BirthsOpen", births)
	if err != nil {
		return nil, nil, fmt.Errorf("look at birth versions: %w", err)
	}
	taken := map[string]bool{}
	for _, n := range rows {
		switch {
		case held[n.Vector] || taken[n.Vector]:
		case building[n.Birth]:
			open = append(open, n)
		default:
			free = append(free, n)
		}
		taken[n.Vector] = true
	}
	return free, open, nil
}

// readNamed reads rows with the vectors that they name.
func readNamed(ctx context.Context, tx taskstate.Tx, query string, params ...any) ([]catalog.NamedRow, error) {
	rows, err := tx.QueryContext(ctx, query, params...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []catalog.NamedRow
	for rows.Next() {
		var n catalog.NamedRow
		if err := rows.Scan(&n.Id, &n.Vector, &n.Birth); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, rows.Err()
}
