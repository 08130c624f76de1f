package upload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// unknownKept bounds how many uploads of unknown outcome are remembered; beyond it the sweeper finds them after a day.
	unknownKept = 10_000
	// unknownRest is how old such an upload must be, and how long the database must have answered, before its row is looked for:
	// a COMMIT that was on its way has arrived by then.
	unknownRest = time.Minute
	// receiverTurn is the pause between two looks.
	receiverTurn = 10 * time.Second
)

// unknowns are received files whose COMMIT may have happened.
type unknowns struct {
	mu    sync.Mutex
	since map[string]time.Time // by id: when its outcome became unknown
	over  bool                 // some could not be remembered: until the others are settled nothing is discarded
	up    time.Time            // since when the database answers; zero: it did not, the last time
}

// Discard removes a received file that was not accepted. One whose COMMIT may have happened stays until its row was looked for.
func (a *Uploads) Discard(f ingest.ReceivedFile) {
	u := &a.unknown
	u.mu.Lock()
	_, kept := u.since[f.ID]
	kept = kept || u.over
	u.mu.Unlock()
	if !kept {
		a.mount.Drop(context.Background(), f.ID)
	}
}

// keepUnknown remembers that a file's COMMIT may have happened.
func (a *Uploads) keepUnknown(id string) {
	u := &a.unknown
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.since) >= unknownKept {
		u.over = true
		return
	}
	if u.since == nil {
		u.since = map[string]time.Time{}
	}
	u.since[id] = a.d.Clock()
}

// notCommitted reports whether an upload's error says for certain that its transaction was not committed.
// The store gives taskstate.ErrOutcomeUnknown for every COMMIT without an answer, and for nothing else.
func notCommitted(ctx context.Context, err error) bool {
	switch {
	case ctx.Err() != nil, errors.Is(err, taskstate.ErrOutcomeUnknown), errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, taskstate.ErrUnavailable):
		return true
	}
	return !errors.Is(err, context.DeadlineExceeded)
}

// RunReceiver settles uploads of unknown outcome and adds deliveries that no request waits for, until ctx ends. It marks a new upload
// folder as the database's without waiting for the first upload: workers take no task before, and a workflow may come first.
func (a *Uploads) RunReceiver(ctx context.Context) error {
	ticker := time.NewTicker(receiverTurn)
	defer ticker.Stop()
	for folder := false; ; {
		if !folder { // a folder that is not the database's is the readiness check's to tell
			folder = a.mount.CheckFolder(ctx) == nil
		}
		select {
		case <-ctx.Done():
			return nil
		case tasks := <-a.deliver.Late():
			a.deliver.AddLate(ctx, tasks)
		case <-ticker.C:
			a.cat.Logged(ctx, "unknown uploads", a.resolveUnknown(ctx))
		}
	}
}

// resolveUnknown looks for the rows of uploads of unknown outcome, and removes the files of those that have none.
func (a *Uploads) resolveUnknown(ctx context.Context) error {
	u := &a.unknown
	now := a.d.Clock()
	u.mu.Lock()
	ids := make([]string, 0, len(u.since))
	for id, at := range u.since {
		if now.Sub(at) >= unknownRest {
			ids = append(ids, id)
		}
	}
	up := u.up
	u.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	if _, err := a.d.Store.Moment(ctx); err != nil {
		a.answers(time.Time{})
		return fmt.Errorf("look for the rows of %d uploads of unknown outcome: %w", len(ids), err)
	}
	if up.IsZero() {
		a.answers(now)
		return nil
	}
	if now.Sub(up) < unknownRest {
		return nil
	}
	slices.Sort(ids)
	for page := range slices.Chunk(ids, catalog.PageSize) {
		if err := a.resolvePage(ctx, page); err != nil {
			a.answers(time.Time{})
			return fmt.Errorf("look for the rows of %d uploads of unknown outcome: %w", len(ids), err)
		}
	}
	return nil
}

// answers notes since when the database answers.
func (a *Uploads) answers(since time.Time) {
	a.unknown.mu.Lock()
	defer a.unknown.mu.Unlock()
	a.unknown.up = since
}

// resolvePage removes the files that no row names. The rows are locked: a transaction that still holds one is waited for.
func (a *Uploads) resolvePage(ctx context.Context, ids []string) error {
	named := map[string]bool{}
	err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		clear(named)
		return sqldb.QueryRows(ctx, tx, "lock stored files", a.q.List("FilesHeld", len(ids)), sqldb.Args(ids), func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id)
			named[id] = true
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !named[id] {
			a.mount.Drop(ctx, id)
		}
	}
	u := &a.unknown
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.since, func(id string, _ time.Time) bool { return slices.Contains(ids, id) })
	if len(u.since) == 0 {
		u.over = false
	}
	a.d.Log.LogAttrs(ctx, slog.LevelInfo, "ingest: uploads of unknown outcome settled",
		slog.Int("uploads", len(ids)), slog.Int("accepted", len(named)))
	return nil
}
