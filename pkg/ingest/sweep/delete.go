package sweep

import (
	"context"
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Deleter takes documents and bases out of sight at once. It is safe for concurrent use.
type Deleter struct {
	d       ingest.Deps
	q       sqldb.Queries
	cat     *catalog.Catalog
	deliver *tasks.Service
	poke    chan struct{} // wakes this process's sweeper: something became due
}

// NewDeleter makes a Deleter.
func NewDeleter(d ingest.Deps, cat *catalog.Catalog, deliver *tasks.Service) *Deleter {
	return &Deleter{d: d, q: cat.Queries(), cat: cat, deliver: deliver, poke: make(chan struct{}, 1)}
}

// wakeSweeper makes this process's sweeper look at once; it never blocks.
func (a *Deleter) wakeSweeper() {
	select {
	case a.poke <- struct{}{}:
	default:
	}
}

const deleteBatch = 200 // documents of one transaction

// DeleteDocument takes a document, with its attachments, out of every search at once; the sweeper removes rows, vectors and file.
// Errors: ErrDocumentNotFound, the caller's guard's, taskstate.ErrUnavailable.
func (a *Deleter) DeleteDocument(ctx context.Context, c ingest.Caller, id string) error {
	found, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("DocumentReachable"), id, sqldb.Flag(c.Scope.All()), c.Scope.UserID)
	if err != nil {
		return fmt.Errorf("delete document %s: %w", id, err)
	}
	if len(found) == 0 {
		return ingest.ErrDocumentNotFound
	}
	if err := a.deleteDocuments(ctx, c.Scope.Actor(), c, found); err != nil {
		return fmt.Errorf("delete document %s: %w", id, err)
	}
	if err := a.deleteAttachments(ctx, c.Scope.Actor(), found[0]); err != nil {
		return fmt.Errorf("delete document %s: %w", id, err)
	}
	return nil
}

// deleteAttachments deletes the attachments of a deleted message, with what they carry. A tombstone gets no new one, so none slips in;
// the sweeper goes on where this was interrupted.
func (a *Deleter) deleteAttachments(ctx context.Context, actor taskstate.Actor, message string) error {
	for {
		found, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("AttachmentsOf"), message, deleteBatch)
		if err != nil {
			return fmt.Errorf("list attachments of %s: %w", message, err)
		}
		if len(found) == 0 {
			return nil
		}
		// The condition was about the message, and the note has been written.
		if err := a.deleteDocuments(ctx, actor, ingest.Caller{}, found); err != nil {
			return err
		}
		for _, id := range found {
			if err := a.deleteAttachments(ctx, actor, id); err != nil {
				return err
			}
		}
	}
}

// deleteDocuments makes tombstones of documents and cancels their open tasks, in one transaction, tasks first (design D8).
// A task that an accept adds between the two locks stays open; the sweeper's first pass cancels it.
// The caller's guard is asked about each document that lives, and the caller's note is written with the tombstones.
func (a *Deleter) deleteDocuments(ctx context.Context, actor taskstate.Actor, c ingest.Caller, documents []string) error {
	open, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.List("TasksOpen", len(documents)), sqldb.Args(documents)...)
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
		return a.tombstone(ctx, tx, m, actor, c, documents)
	})
	if err == nil {
		crash.Point("delete.after_row")
		a.wakeSweeper()
	}
	return err
}

// deleteWithTasks cancels the open tasks and deletes the documents in one transaction.
func (a *Deleter) deleteWithTasks(ctx context.Context, actor taskstate.Actor, c ingest.Caller, documents, open []string) error {
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
			if _, err := a.cat.LockDocuments(ctx, tx, documents); err != nil {
				return err
			}
			if err := a.cat.OnTransition(ctx, tx, m, changed); err != nil {
				return err
			}
			return a.tombstone(ctx, tx, m, actor, c, documents)
		},
	})
	if err != nil {
		return fmt.Errorf("cancel open tasks: %w", err)
	}
	crash.Point("delete.after_tasks")
	a.deliver.AnnounceChanges(ctx, outcomes)
	return nil
}

// guardDocuments asks the caller's condition about those of documents that live, under their locks.
func (a *Deleter) guardDocuments(ctx context.Context, tx taskstate.Tx, c ingest.Caller, documents []string) error {
	if c.Guard == nil {
		return nil
	}
	for _, id := range documents {
		d, err := a.cat.LockDocument(ctx, tx, id)
		if errors.Is(err, ingest.ErrDocumentNotFound) {
			continue // a tombstone already
		}
		if err != nil {
			return err
		}
		base, err := a.cat.BaseByID(ctx, tx, d.BaseID, d.UserID)
		if err != nil && !errors.Is(err, ingest.ErrBaseNotFound) {
			return err
		}
		if err := c.Allows(d.Document(base.Name)); err != nil {
			return err
		}
	}
	return nil
}

// tombstone makes tombstones of those of documents that live, and their receipts; the caller's note is written when there are such.
func (a *Deleter) tombstone(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, actor taskstate.Actor, c ingest.Caller, documents []string) error {
	locked, err := a.cat.LockDocuments(ctx, tx, documents)
	if err != nil {
		return err
	}
	var live []string
	counts := catalog.Counts{}
	for _, id := range documents {
		if d, found := locked[id]; found && !d.Deleted {
			live = append(live, id)
			counts.Gone(d)
			delete(locked, id) // one that is named twice is counted once
		}
	}
	if err := a.cat.ExecList(ctx, tx, "VersionsSupersede", live, m.Now, m.Now, m.Now); err != nil {
		return err
	}
	if err := a.cat.ExecList(ctx, tx, "DocumentsTombstone", live, m.Now, m.Now, m.Now); err != nil || len(live) == 0 {
		return err
	}
	if err := a.cat.Count(ctx, tx, counts); err != nil {
		return err
	}
	if err := a.cat.NoteDeletions(ctx, tx, live, actor, m.Now, m.Now.Add(receiptRest)); err != nil {
		return fmt.Errorf("write receipts: %w", err)
	}
	return c.WriteNote(ctx, tx, m)
}

// DeleteBase deletes a base and, with cascade, its documents; the sweeper goes on where this call was interrupted.
// Errors: ErrBaseNotFound, ErrBaseNotEmpty, the caller's guard's, taskstate.ErrUnavailable.
func (a *Deleter) DeleteBase(ctx context.Context, c ingest.Caller, idOrName string, cascade bool) error {
	base, err := a.cat.Base(ctx, c, idOrName)
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
func (a *Deleter) buryBase(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, c ingest.Caller, id string, cascade bool) error {
	b, err := a.cat.LockBase(ctx, tx, id)
	if err != nil {
		return err
	}
	if err := c.Allows(b); err != nil {
		return err
	}
	if !cascade {
		left, err := sqldb.Texts(ctx, tx, a.q.Get("BaseHasDocument"), id)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return ingest.ErrBaseNotEmpty
		}
	}
	if _, err := tx.ExecContext(ctx, a.q.Get("BaseTombstone"), m.Now, m.Now, m.Now, id); err != nil {
		return err
	}
	return c.WriteNote(ctx, tx, m)
}

// deleteBaseDocuments deletes the live documents of a deleted base and returns how many there were.
func (a *Deleter) deleteBaseDocuments(ctx context.Context, actor taskstate.Actor, base string) (int, error) {
	for n := 0; ; {
		documents, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("BaseDocuments"), base, deleteBatch)
		if err != nil {
			return n, fmt.Errorf("list documents of base %s: %w", base, err)
		}
		if len(documents) == 0 {
			return n, nil
		}
		if err := a.deleteDocuments(ctx, actor, ingest.Caller{}, documents); err != nil {
			return n, err
		}
		n += len(documents)
	}
}
