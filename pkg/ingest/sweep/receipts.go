package sweep

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// receiptRest is how long after a deletion its receipt is verified: longer than the embedding cache keeps an entry after its last
	// use (design D10). So a base's index is written anew once a day at most, however many of its documents are deleted.
	receiptRest = 25 * time.Hour
	// receiptRetry is the pause before a base is looked at again of which something was left.
	receiptRetry = time.Hour
)

// receipts verify that deleted documents are gone (design D8).
type receipts struct{ *Sweeper }

// noteFiles writes down the files that go with a document, in the transaction that lets them go: a process that dies before it has
// removed them leaves their names.
func (a receipts) noteFiles(ctx context.Context, tx taskstate.Tx, document string, paths []string) error {
	before, err := sqldb.Texts(ctx, tx, a.q.Get("DeletionFiles"), document)
	if err != nil || len(before) == 0 { // deleted before receipts were written
		return err
	}
	_, err = tx.ExecContext(ctx, a.q.Get("DeletionSetFiles"), strings.Join(append(strings.Fields(before[0]), paths...), " "), document)
	return err
}

// filesGone removes what is still there of the files that went with a document, and reports whether all are gone.
func (a receipts) filesGone(ctx context.Context, document string) (bool, error) {
	noted, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("DeletionFiles"), document)
	if err != nil || len(noted) == 0 {
		return err == nil, err
	}
	return a.absent(ctx, noted[0])
}

// absent removes files by their names, and reports whether none is there.
func (a receipts) absent(ctx context.Context, names string) (bool, error) {
	if err := a.mount.CheckFolder(ctx); err != nil {
		return false, fmt.Errorf("look for removed files: %w", err) // what is not seen is not gone
	}
	gone := true
	for _, name := range strings.Fields(names) {
		_, err := a.mount.Folder.WrittenAt(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("look for removed file %s: %w", name, err)
		}
		a.mount.Drop(ctx, name)
		gone = false // it is looked for once more
	}
	return gone, nil
}

// waiting is a receipt that is not verified.
type waiting struct{ document, files string }

// verify looks at the bases of receipts whose time has come, and verifies all of theirs whose document is gone.
func (a receipts) verify(ctx context.Context, _ *Swept) error {
	now, err := a.cat.Moment(ctx)
	if err != nil {
		return err
	}
	bases, err := sqldb.ReadTexts(ctx, a.d.Store, a.q.Get("DeletionsDue"), now, sweepBatch)
	if err != nil {
		return err
	}
	var errs []error
	for _, base := range bases {
		if err := a.verifyBase(ctx, strings.TrimSpace(base), now); err != nil {
			errs = append(errs, fmt.Errorf("verify deletions of base %s: %w", base, err))
		}
	}
	return errors.Join(errs...)
}

// verifyBase verifies the receipts of a base. Those that cannot be yet are looked at again later: after an hour when something was left,
// else a day after this look, so that the index is not written anew for each of many deletions. A process that dies within leaves them
// due: nothing but verified_at says that one was verified.
func (a receipts) verifyBase(ctx context.Context, base string, now time.Time) error {
	clean, err := a.index.Purge(ctx, base)
	if err == nil && clean {
		clean, err = a.cache.Swept(ctx)
	}
	for more := clean; more && err == nil; {
		more, clean, err = a.verifyPage(ctx, base, now)
	}
	next := now.Add(receiptRest)
	if err != nil || !clean {
		next = now.Add(receiptRetry)
	}
	return errors.Join(err, a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, a.q.Get("DeletionsLater"), next, base, next)
		return err
	}))
}

// verifyPage verifies some receipts; more tells that there are others, all that each of these could be verified.
func (a receipts) verifyPage(ctx context.Context, base string, now time.Time) (more, all bool, err error) {
	params := []any{base, now.Add(-receiptRest), now, sweepBatch}
	page, err := sqldb.ReadAll(ctx, a.d.Store, "look for receipts", a.q.Get("DeletionsWaiting"), params, func(rows *sql.Rows) (w waiting, err error) {
		return w, rows.Scan(&w.document, &w.files)
	})
	if err != nil {
		return false, false, err
	}
	all = true
	for _, w := range page {
		done, err := a.verifyOne(ctx, w)
		if err != nil {
			return false, false, fmt.Errorf("document %s: %w", w.document, err)
		}
		all = all && done
	}
	return all && len(page) == sweepBatch, all, nil
}

// verifyOne verifies a receipt unless something of its document is there.
func (a receipts) verifyOne(ctx context.Context, w waiting) (done bool, err error) {
	if absent, err := a.absent(ctx, w.files); err != nil || !absent {
		return false, err
	}
	err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		left, err := sqldb.Texts(ctx, tx, a.q.Get("DeletionLeft"), w.document, w.document, w.document)
		if done = err == nil && len(left) == 0; !done {
			return err
		}
		_, err = tx.ExecContext(ctx, a.q.Get("DeletionVerified"), m.Now, catalog.Never(), w.document)
		return err
	})
	return done && err == nil, err
}
