package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/tables"
)

// orphaned is older than what the sweeper leaves alone in the upload folder.
const orphaned = 25 * time.Hour

// judge waits for rest and lets every rule judge; then it looks for processes that were left, and at payments.
func (t *trial) judge(ctx context.Context) error {
	if err := t.settled(ctx); err != nil {
		return err
	}
	if err := t.audit().Run(ctx); err != nil {
		return err
	}
	if err := t.payments(ctx); err != nil {
		return err
	}
	if err := t.uncopied(ctx); err != nil {
		return err
	}
	return t.NoStrays(ctx)
}

// uncopied waits until no copy is left: every task has ended. What no row belongs to is of a lane that was given up.
func (t *trial) uncopied(ctx context.Context) error {
	if !t.scene.Rabbit {
		return nil
	}
	return await.Until(ctx, settleLimit, 5*lookEvery, func(ctx context.Context) error {
		met, err := t.Copies(ctx)
		maps.DeleteFunc(met, func(_ string, of taskstate.Status) bool { return of == taskstate.StatusNone })
		if err == nil && len(met) > 0 {
			err = fmt.Errorf("%d copies are left: %v", len(met), met)
		}
		return err
	})
}

// payments: nothing of the trial's documents was paid for twice: the point comes after the embedding cache, and a worker that stood still
// for longer than its lease takes nothing over from itself.
func (t *trial) payments(ctx context.Context) error {
	if !t.scene.paid {
		return nil
	}
	for _, d := range t.docs {
		paid := map[string]bool{}
		for _, e := range t.Embed.Effects() {
			if e.Task != d.task || !e.Paid {
				continue
			}
			if !paid[e.TextsHash] {
				paid[e.TextsHash] = true
				continue
			}
			log, err := tables.Log(ctx, t.DB.Reader(), d.task)
			if t.scene.ended && slices.ContainsFunc(log, func(r taskstate.Transition) bool { return r.Reason == taskstate.ReasonTakeover }) {
				break // it had not ended: the point was met for another delivery of it
			}
			return errors.Join(fmt.Errorf("batch %s of task %s was paid for twice\n%s", e.Batch, d.task, tables.Chain(log)), err)
		}
	}
	return nil
}

// gone waits until nothing names the trial's deleted documents any more, and looks for their vectors and files.
func gone(ctx context.Context, t *trial) error {
	for _, d := range t.docs {
		err := await.Until(ctx, settleLimit, 5*lookEvery, func(ctx context.Context) error {
			for _, statement := range []string{
				"SELECT COUNT(*) FROM knowledge_segment WHERE document_id = ?",
				"SELECT COUNT(*) FROM vector_garbage WHERE document_id = ? AND sweep_pass = 0",
				"SELECT COUNT(*) FROM document_version v JOIN stored_file f ON f.id = v.file_id WHERE v.document_id = ?",
			} {
				if n, err := t.count(ctx, statement, d.document); err != nil || n > 0 {
					return errors.Join(err, fmt.Errorf("%d rows of the deleted document %s: %s", n, d.document, statement))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		hits, err := t.client.Search(ctx, d.Base, d.Mark, 5)
		var refused *apiclient.StatusError
		if err != nil && !errors.As(err, &refused) { // its base may be gone
			return err
		}
		for _, h := range hits {
			if h.DocumentID == d.document {
				return fmt.Errorf("the deleted document %s is found", d.document)
			}
		}
	}
	return nil
}

// count is a SELECT COUNT(*).
func (l *lane) count(ctx context.Context, statement string, args ...any) (n int, err error) {
	err = l.DB.Reader().QueryRowContext(ctx, statement, args...).Scan(&n)
	return n, err
}

// end judges what only all points together show: that the crashed runs made the same segments as undisturbed ones (I27), and
// that the sweeper finds every file that no row names. It returns every rule's word on all that happened in the lane.
func (l *lane) end(ctx context.Context) (history.Report, error) {
	if err := l.again(ctx); err != nil {
		return nil, err
	}
	a := l.audit()
	if len(l.clean) > 0 {
		a.Rules = []string{"I27"}
	}
	report, err := a.Judge(ctx)
	if err == nil {
		err = l.noOrphans(ctx)
	}
	return report, err
}

// again runs the lane's documents once more in a base of their own, undisturbed.
func (l *lane) again(ctx context.Context) error {
	const base = "undisturbed"
	if len(l.clean) == 0 {
		return nil
	}
	if err := l.client.CreateBase(ctx, base); err != nil {
		return err
	}
	for _, d := range l.clean {
		d.Base = base
		if _, err := l.client.Upload(ctx, d); err != nil {
			return err
		}
	}
	return l.undisturbed(ctx)
}

// noOrphans lets a day pass for the upload folder: files that died uploads left go, those of rows stay.
func (l *lane) noOrphans(ctx context.Context) error {
	entries, err := os.ReadDir(l.Uploads())
	if err != nil {
		return err
	}
	old := time.Now().Add(-orphaned)
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(l.Uploads(), e.Name()), old, old); err != nil {
			return err
		}
	}
	sweeper, err := l.Start("reclaimer")
	if err != nil {
		return err
	}
	defer sweeper.Kill()
	return await.Until(ctx, settleLimit, 100*time.Millisecond, func(ctx context.Context) error {
		stored, err := l.stored(ctx)
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(l.Uploads())
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") && !stored[e.Name()] {
				return fmt.Errorf("no row names the file %s", filepath.Join(l.Uploads(), e.Name()))
			}
			delete(stored, e.Name())
		}
		if len(stored) > 0 {
			return fmt.Errorf("files of rows are missing: %v", slices.Sorted(maps.Keys(stored)))
		}
		return nil
	})
}

// stored are the paths of all stored files' rows.
func (l *lane) stored(ctx context.Context) (map[string]bool, error) {
	paths, err := tables.Texts(ctx, l.DB.Reader(), "SELECT path FROM stored_file")
	out := map[string]bool{}
	for _, path := range paths {
		out[path] = true
	}
	return out, err
}
