package sweep

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// baseRest is how long a deleted base waits while documents of it are still being removed.
const baseRest = time.Minute

// dueThing is a deleted document or base that the sweeper must look at.
type dueThing struct {
	id, base string
	pass     int
}

// documentSweep takes deleted documents and bases apart.
type documentSweep struct{ *Sweeper }

// sweepDocuments takes deleted documents apart in passes (design D8):
//
//	each pass     attachments are deleted, open tasks cancelled, rows removed with their vectors marked, the file let go
//	10 minutes later, when a pass found no open task, no vector waits for its deletion any more, and no file is there: the tombstone goes
func (a documentSweep) sweepDocuments(ctx context.Context, s *Swept) error {
	return turns(ctx, a.Sweeper, sweepBatch, a.due(ctx, "DocumentsDue"), func(due []dueThing) error {
		for _, d := range due {
			if err := a.sweepDocument(ctx, d, s); err != nil {
				return fmt.Errorf("document %s: %w", d.id, err)
			}
		}
		return nil
	})
}

// due reads pages of what is due.
func (a documentSweep) due(ctx context.Context, name string) func(now time.Time) ([]dueThing, error) {
	return func(now time.Time) ([]dueThing, error) {
		return sqldb.ReadAll(ctx, a.d.Store, "look for what is due", a.q.Get(name), []any{now, sweepBatch}, func(rows *sql.Rows) (d dueThing, err error) {
			return d, rows.Scan(&d.id, &d.base, &d.pass)
		})
	}
}

// sweepDocument is one pass over a deleted document.
func (a documentSweep) sweepDocument(ctx context.Context, d dueThing, s *Swept) error {
	if err := a.deleter.deleteAttachments(ctx, sweeperActor(), d.id); err != nil {
		return err
	}
	cancelled, err := a.cancelDeleted(ctx, d.id)
	if err != nil {
		return err
	}
	s.Cancelled += cancelled
	removed := 0
	for {
		n, err := marking(a).markRows(ctx, d.id, d.base, func(ctx context.Context, tx taskstate.Tx) ([]catalog.NamedRow, error) {
			return readNamed(ctx, tx, a.q.Get("DocumentRows"), d.id, rowsSwept)
		})
		if err != nil {
			return err
		}
		if removed += n; n < rowsSwept {
			break
		}
	}
	if err := a.unlinkAll(ctx, d.id, s); err != nil {
		return err
	}
	absent, err := receipts(a).filesGone(ctx, d.id)
	if err != nil {
		return err
	}
	if d.pass > 0 && cancelled == 0 && removed == 0 && absent {
		gone, err := a.forgetDocument(ctx, d)
		crash.Point("gc.after_forget")
		if err != nil || gone {
			if gone {
				s.Documents++
			}
			return err
		}
	}
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		pass := d.pass + 1
		if cancelled > 0 {
			pass = max(d.pass, 1) // the ten minutes begin with a pass that found no open task
		}
		_, err := tx.ExecContext(ctx, a.q.Get("DocumentSweepLater"), pass, m.Now.Add(secondPass), d.id, d.pass)
		return err
	})
}

// cancelDeleted cancels the tasks of a deleted document that are open all the same.
func (a documentSweep) cancelDeleted(ctx context.Context, document string) (int, error) {
	open, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.List("TasksOpen", 1), document)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	outcomes, err := a.d.Store.Apply(ctx, taskstate.Batch{
		IDs: open, Scope: taskstate.System(), OnTransition: a.cat.OnTransition,
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(m, t, sweeperActor(), taskstate.ReasonDeleted, "its document was deleted")
		}),
	})
	if err != nil {
		return 0, fmt.Errorf("cancel open tasks: %w", err)
	}
	a.deliver.AnnounceChanges(ctx, outcomes)
	return len(open), nil
}

// forgetDocument removes the tombstone and its versions, unless a vector of theirs still has to be deleted.
func (a documentSweep) forgetDocument(ctx context.Context, d dueThing) (bool, error) {
	gone := false
	err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		gone = false
		locked, err := sqldb.Texts(ctx, tx, a.q.Get("DocumentTomb"), d.id)
		if err != nil || len(locked) == 0 {
			return err
		}
		owed, err := sqldb.Texts(ctx, tx, a.q.Get("DocumentGarbageLeft"), d.id)
		if err != nil || len(owed) > 0 {
			return err
		}
		res, err := tx.ExecContext(ctx, a.q.Get("DocumentGone"), d.id, d.pass)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		gone = true
		for _, statement := range []string{"DocumentMetadataGone", "DocumentVersionsGone"} {
			if _, err := tx.ExecContext(ctx, a.q.Get(statement), d.id); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, a.q.Get("DeletionRemoved"), m.Now, d.id)
		return err
	})
	return gone, err
}

// sweepBases removes what is left of deleted bases: documents that the deletion did not reach, then the collection, twice, then the row.
func (a documentSweep) sweepBases(ctx context.Context, s *Swept) error {
	now, err := a.cat.Moment(ctx)
	if err != nil {
		return err
	}
	due, err := a.due(ctx, "BasesDue")(now)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range due {
		if err := a.sweepBase(ctx, b, s); err != nil {
			errs = append(errs, fmt.Errorf("base %s: %w", b.id, err))
		}
	}
	return errors.Join(errs...)
}

// sweepBase is one look at a deleted base.
func (a documentSweep) sweepBase(ctx context.Context, b dueThing, s *Swept) error {
	n, err := a.deleter.deleteBaseDocuments(ctx, sweeperActor(), b.id)
	if err != nil {
		return err
	}
	s.Cancelled += n
	left, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("BaseRowLeft"), b.id)
	if err != nil {
		return err
	}
	pass, rest := b.pass, baseRest
	if len(left) == 0 {
		if err := errors.Join(a.dropAll(ctx, b.id), crash.Fault("gc.after_collection")); err != nil {
			return err
		}
		pass, rest = b.pass+1, secondPass
	}
	return a.noteBase(ctx, b, pass, rest)
}

// dropAll drops the collections of a base.
func (a documentSweep) dropAll(ctx context.Context, base string) error {
	collections, err := a.cat.Collections(ctx, base)
	if err != nil {
		return err
	}
	for _, c := range collections {
		if err := a.d.Vectors.Drop(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// sweepCollections drops collections that no base uses any more, twice: a run that was paused for long may have written to one
// after the first time.
func (a documentSweep) sweepCollections(ctx context.Context, _ *Swept) error {
	now, err := a.cat.Moment(ctx)
	if err != nil {
		return err
	}
	due, err := a.due(ctx, "CollectionsDue")(now)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range due {
		if err := a.d.Vectors.Drop(ctx, c.id); err != nil {
			errs = append(errs, fmt.Errorf("collection %s of base %s: %w", c.id, c.base, err))
			continue
		}
		errs = append(errs, a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			if c.pass > 0 {
				_, err := tx.ExecContext(ctx, a.q.Get("CollectionGone"), c.id, c.pass)
				return err
			}
			_, err := tx.ExecContext(ctx, a.q.Get("CollectionLater"), c.pass+1, m.Now.Add(secondPass), c.id, c.pass)
			return err
		}))
	}
	return errors.Join(errs...)
}

// noteBase notes the passes that a deleted base has behind it; its row goes after the second.
func (a documentSweep) noteBase(ctx context.Context, b dueThing, pass int, rest time.Duration) error {
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if pass > 1 {
			_, err := tx.ExecContext(ctx, a.q.Get("BaseGone"), b.id, b.pass)
			if err == nil {
				_, err = tx.ExecContext(ctx, a.q.Get("CountsGone"), b.id)
			}
			return err
		}
		_, err := tx.ExecContext(ctx, a.q.Get("BaseSweepLater"), pass, m.Now.Add(rest), b.id, b.pass)
		return err
	})
}
