package upload

import (
	"context"
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// errMoved: another version became visible since the one to go back to was looked for.
var errMoved = fmt.Errorf("another version is visible now: %w", ingest.ErrChanged)

// Rollback takes the content of an earlier version in again, as a new version of the document: bytes, title and metadata. It is an accept
// of a stored file, so that its task, a crash at any step, and uploads, deletions and sweeps at the same moment are what they are with any
// upload. key is the request's idempotency key; empty: none. What is unchanged keeps its vectors, and the embedding cache has those of the rest for a day (design D8, D10).
// Errors: ErrDocumentNotFound, ErrVersionNotFound, ErrVersionVisible, ErrVersionGone, and those of Accept.
func (a *Uploads) Rollback(ctx context.Context, c ingest.Caller, document string, version int64, key string) (ingest.Accepted, error) {
	guard := c.Guard
	for try := 1; ; try++ {
		u, err := a.rollbackUpload(ctx, &c, guard, document, version, key)
		if err != nil {
			return ingest.Accepted{}, fmt.Errorf("roll document %s back: %w", document, err)
		}
		got, err := a.Accept(ctx, c, u)
		if !errors.Is(err, errMoved) || try == acceptTries {
			return got, err
		}
	}
}

// rollbackUpload is what a rollback accepts. A repeated request goes without a file: by its key it is given the task that it has made,
// whatever is visible by now.
func (a *Uploads) rollbackUpload(
	ctx context.Context, c *ingest.Caller, guard func(current any) error, document string, version int64, key string,
) (ingest.Upload, error) {
	again := ingest.Upload{DocumentID: document, Kept: &ingest.Kept{Version: version}}
	if key != "" {
		again.IdempotencyKey, again.Unclaimed = key+"/1", key // as the key of an upload of one file
		k := tasks.UserKey{User: c.Scope.UserID, Key: again.IdempotencyKey}
		earlier, err := sqldb.Read(ctx, a.d.Store, func(ctx context.Context, tx taskstate.Tx) (map[tasks.UserKey]taskstate.Task, error) {
			return a.deliver.Earlier(ctx, tx, map[tasks.UserKey]bool{k: true})
		})
		if _, made := earlier[k]; err != nil || made {
			return again, err
		}
	}
	u, visible, err := a.cat.RollbackUpload(ctx, c.Scope.UserID, document, version)
	if err != nil {
		return ingest.Upload{}, err
	}
	u.IdempotencyKey, u.Unclaimed = again.IdempotencyKey, again.Unclaimed
	c.Guard = func(current any) error {
		if now, is := current.(ingest.Document); is && now.VisibleVersion != visible {
			return errMoved
		}
		if guard != nil {
			return guard(current)
		}
		return nil
	}
	return u, nil
}
