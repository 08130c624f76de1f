package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
)

const deleteBatch = 200 // documents of one transaction

// DeleteDocument takes a document out of every search at once; the sweeper removes rows, vectors and file.
// Errors: ErrDocumentNotFound, the caller's guard's, taskstate.ErrUnavailable.
func (a *App) DeleteDocument(ctx context.Context, c Caller, id string) error {
	found, err := readColumn(ctx, a.d.Store, a.q.Get("DocumentReachable"), id, flag(c.Scope.All()), c.Scope.UserID)
	if err != nil {
		return fmt.Errorf("delete document %s: %w", id, err)
	}
	if len(found) == 0 {
		return ErrDocumentNotFound
	}
	if err := a.deleteDocuments(ctx, c.Scope.Actor(), c, found); err != nil {
		return fmt.Errorf("delete document %s: %w", id, err)
	}
	return nil
}

// deleteDocuments makes tombstones of documents and cancels their open tasks, in one transaction, tasks first (design D8).
// A task that an accept adds between the two locks stays open; the sweeper's first pass cancels it.
// The caller's guard is asked about each document that lives, his note is written with what is buried.
func (a *App) deleteDocuments(ctx context.Context, actor taskstate.Actor, c Caller, documents []string) error {
	open, err := readColumn(ctx, a.d.Store, a.q.List("TasksOpen", len(documents)), args(documents)...)
	if err != nil {
		return fmt.Errorf("find open tasks: %w", err)
	}
	if len(open) > 0 {
		if err := a.deleteWithTasks(ctx, actor, c, documents, open); err != nil {
			return err
		}
	}
	// Buried already, unless no task was open any more when they were locked.
	err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if err := a.guardDocuments(ctx, tx, c, documents); err != nil {
			return err
		}
		return a.bury(ctx, tx, m, c, documents)
	})
	if err == nil {
		crash.Point("delete.after_row")
		a.wakeSweeper()
	}
	return err
}

// deleteWithTasks cancels the open tasks and writes a dead letter for the documents with them.
func (a *App) deleteWithTasks(ctx context.Context, actor taskstate.Actor, c Caller, documents, open []string) error {
	outcomes, err := a.d.Store.Apply(ctx, taskstate.Batch{
		IDs: open, Scope: taskstate.System(),
		Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
			if err := a.guardDocuments(ctx, tx, c, documents); err != nil {
				return nil, err
			}
			cancel := taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Cancel(m, t, actor, taskstate.ReasonDeleted, "its document was deleted")
			})
			return cancel(ctx, tx, m, tasks)
		},
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
			if _, err := a.lockDocuments(ctx, tx, documents); err != nil {
				return err
			}
			if err := a.onTransition(ctx, tx, m, changed); err != nil {
				return err
			}
			return a.bury(ctx, tx, m, c, documents)
		},
	})
	if err != nil {
		return fmt.Errorf("cancel open tasks: %w", err)
	}
	crash.Point("delete.after_tasks")
	a.announceChanges(ctx, outcomes)
	return nil
}

// guardDocuments asks the caller's condition about those of documents that live, under their locks.
func (a *App) guardDocuments(ctx context.Context, tx taskstate.Tx, c Caller, documents []string) error {
	if c.Guard == nil {
		return nil
	}
	for _, id := range documents {
		d, err := a.lockDocument(ctx, tx, id)
		if errors.Is(err, ErrDocumentNotFound) {
			continue // buried already
		}
		if err != nil {
			return err
		}
		base, err := a.baseByID(ctx, tx, d.BaseID, d.UserID)
		if err != nil && !errors.Is(err, ErrBaseNotFound) {
			return err
		}
		if err := c.guard(d.document(base.Name)); err != nil {
			return err
		}
	}
	return nil
}

// baseByID finds a user's base by its id. ErrBaseNotFound.
func (a *App) baseByID(ctx context.Context, tx taskstate.Tx, id, user string) (Base, error) {
	return baseFrom(tx.QueryRowContext(ctx, a.q.Get("BaseOfUser"), id, user))
}

// bury makes tombstones of those of documents that live; the caller's note is written when there are such.
func (a *App) bury(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, c Caller, documents []string) error {
	locked, err := a.lockDocuments(ctx, tx, documents)
	if err != nil {
		return err
	}
	var live []string
	for _, id := range documents {
		if d, found := locked[id]; found && !d.deleted {
			live = append(live, id)
		}
	}
	if err := a.execList(ctx, tx, "VersionsSupersede", live, m.Now, m.Now, m.Now); err != nil {
		return err
	}
	if err := a.execList(ctx, tx, "DocumentsTombstone", live, m.Now, m.Now, m.Now); err != nil || len(live) == 0 {
		return err
	}
	return c.note(ctx, tx, m)
}

// DeleteBase deletes a base and, with cascade, its documents; the sweeper goes on where this call was interrupted.
// Errors: ErrBaseNotFound, ErrBaseNotEmpty, the caller's guard's, taskstate.ErrUnavailable.
func (a *App) DeleteBase(ctx context.Context, c Caller, idOrName string, cascade bool) error {
	base, err := a.reachableBase(ctx, c, idOrName)
	if err != nil {
		return err
	}
	err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		return a.buryBase(ctx, tx, m, c, base.ID, cascade)
	})
	if err != nil {
		return fmt.Errorf("delete base %s: %w", idOrName, err)
	}
	crash.Point("delete.after_base_row")
	a.wakeSweeper()
	// The condition was about the base, and the note has been written.
	if _, err := a.deleteBaseDocuments(ctx, c.Scope.Actor(), base.ID); err != nil {
		return fmt.Errorf("delete base %s: %w", idOrName, err)
	}
	return nil
}

// buryBase makes a tombstone of a base; accepts keep it alive until they have committed, so none slips in.
func (a *App) buryBase(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, c Caller, id string, cascade bool) error {
	locked, err := column(ctx, tx, a.q.Get("BaseLock"), id)
	if err != nil {
		return err
	}
	if len(locked) == 0 {
		return ErrBaseNotFound
	}
	if c.Guard != nil {
		b, err := baseFrom(tx.QueryRowContext(ctx, a.q.Get("BaseReachable"), id, flag(true), ""))
		if err != nil {
			return err
		}
		if err := c.guard(b); err != nil {
			return err
		}
	}
	if !cascade {
		left, err := column(ctx, tx, a.q.Get("BaseHasDocument"), id)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return ErrBaseNotEmpty
		}
	}
	if _, err := tx.ExecContext(ctx, a.q.Get("BaseTombstone"), m.Now, m.Now, m.Now, id); err != nil {
		return err
	}
	return c.note(ctx, tx, m)
}

// reachableBase finds a base in the caller's scope. ErrBaseNotFound.
func (a *App) reachableBase(ctx context.Context, c Caller, idOrName string) (Base, error) {
	if idOrName == "" {
		idOrName = DefaultBase
	}
	if uuidText.MatchString(idOrName) {
		b, err := readRow(ctx, a.d.Store, baseFrom, a.q.Get("BaseReachable"), idOrName, flag(c.Scope.All()), c.Scope.UserID)
		if !errors.Is(err, ErrBaseNotFound) {
			return b, err
		}
	}
	return readRow(ctx, a.d.Store, baseFrom, a.q.Get("BaseNamed"), c.Scope.UserID, idOrName)
}

// deleteBaseDocuments writes a dead letter for the live documents of a deleted base and returns how many there were.
func (a *App) deleteBaseDocuments(ctx context.Context, actor taskstate.Actor, base string) (int, error) {
	for n := 0; ; {
		documents, err := readColumn(ctx, a.d.Store, a.q.Get("BaseDocuments"), base, deleteBatch)
		if err != nil {
			return n, fmt.Errorf("list documents of base %s: %w", base, err)
		}
		if len(documents) == 0 {
			return n, nil
		}
		if err := a.deleteDocuments(ctx, actor, Caller{}, documents); err != nil {
			return n, err
		}
		n += len(documents)
	}
}
