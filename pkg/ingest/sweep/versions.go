package sweep

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// dueVersion is a version that the sweeper must look at.
type dueVersion struct {
	id, document, base, task string
	state                    catalog.VersionState
}

// versionSweep ends outdated uploads and takes closed versions apart.
type versionSweep struct{ *Sweeper }

// sweepVersions cancels outdated uploads' tasks and removes the rows of closed versions, with their vectors marked to be deleted.
func (a versionSweep) sweepVersions(ctx context.Context, s *Swept) error {
	due := func(now time.Time) ([]dueVersion, error) {
		return sqldb.ReadAll(ctx, a.d.Store, "look for due versions", a.q.Get("VersionsDue"), []any{now, sweepBatch}, func(rows *sql.Rows) (v dueVersion, err error) {
			return v, rows.Scan(&v.id, &v.document, &v.base, &v.state, &v.task)
		})
	}
	return turns(ctx, a.Sweeper, sweepBatch, due, func(due []dueVersion) error {
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
		return nil
	})
}

// cancelOutdated cancels the open tasks of BUILDING versions that a later upload's visible version outdates (contract §2).
func (a versionSweep) cancelOutdated(ctx context.Context, due []dueVersion, s *Swept) error {
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
		Decide: a.outdatedDecisions,
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
func (a versionSweep) outdatedDecisions(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
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
func (a versionSweep) lookedAt(ctx context.Context, due []dueVersion, state catalog.VersionState) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		for _, v := range due {
			if v.state != state {
				continue
			}
			if _, err := tx.ExecContext(ctx, a.q.Get("VersionSweepAt"), catalog.Never(), v.id, string(state)); err != nil {
				return fmt.Errorf("version %s was looked at: %w", v.id, err)
			}
			if state == catalog.VersionBuilding {
				continue
			}
			if _, err := tx.ExecContext(ctx, a.q.Get("VersionMetadataGone"), v.id); err != nil {
				return fmt.Errorf("remove the metadata of version %s: %w", v.id, err)
			}
		}
		return nil
	})
}

// sweepClosed removes a closed version's rows in bounded transactions and lets its stored file go if no replay can want it.
func (a versionSweep) sweepClosed(ctx context.Context, v dueVersion, s *Swept) error {
	for {
		n, err := marking(a).markRows(ctx, v.document, v.base, func(ctx context.Context, tx taskstate.Tx) ([]catalog.NamedRow, error) {
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
