package upload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/sqldb"
)

// storedFile is a row of stored_file that holds an upload's bytes.
type storedFile struct {
	id, path string // path is empty until the row is locked
	bytes    int64
	// faulty: a task on this file was given up, so its bytes are not trusted.
	faulty bool
}

// linkFiles finds for each written upload the file row that holds its bytes: one that is there, locked and linked,
// that of another upload of this batch, or its own (design D8).
func (r *acceptRun) linkFiles(ctx context.Context) error {
	if err := r.lockFiles(ctx); err != nil {
		return err
	}
	if err := r.replaceDamaged(ctx); err != nil {
		return err
	}
	var params []any
	var err error
	rows := 0
	r.each(acceptWrites, func(w *acceptWork) {
		f, k := w.u.File, w.fileKey()
		stored := r.files[k]
		if stored.path == "" && w.u.Kept != nil { // let go since it was looked for
			w.refuse(ingest.ErrVersionGone)
			return
		}
		if stored.path == "" { // none, or it went before it was locked
			whole, lookErr := r.app.mount.Folder.Whole(f.ID, f.Bytes)
			if err = errors.Join(err, lookErr); !whole {
				w.refuse(ingest.ErrUploadExpired)
				return
			}
			stored = storedFile{id: f.ID, path: f.ID}
			r.files[k] = stored
			params = append(params, f.ID, k[0], f.SHA256, f.Bytes, f.Name, f.MediaType, f.ID, r.m.Now)
			rows++
		}
		w.fileID, w.filePath, w.got.ownFile = stored.id, stored.path, stored.path == f.ID
	})
	if err != nil {
		return err
	}
	if err := r.insert(ctx, "FilesInsert", rows, params); err != nil {
		return fmt.Errorf("insert stored files: %w", err)
	}
	return nil
}

// fileKey is what a stored file with the upload's bytes is found by.
func (w *acceptWork) fileKey() sqldb.Pair { return sqldb.Pair{w.c.Scope.UserID, w.u.File.SHA256} }

// bringsCopy reports whether an upload's received file may stand in for a stored one: it is written, or answered.
func (w *acceptWork) bringsCopy() bool { return w.state == acceptWrites || w.state == acceptAnswered }

// lockFiles locks the rows that hold the bytes of written and answered uploads, and learns their paths.
func (r *acceptRun) lockFiles(ctx context.Context) error {
	wanted := map[string]sqldb.Pair{}
	for _, w := range r.works {
		if stored, found := r.files[w.fileKey()]; found && w.bringsCopy() {
			wanted[stored.id] = w.fileKey()
		}
	}
	return r.list(ctx, "lock stored files", "FilesLock", maps.Keys(wanted), func(rows *sql.Rows) error {
		var f storedFile
		err := rows.Scan(&f.id, &f.path, &f.bytes, &f.faulty)
		r.files[wanted[f.id]] = f
		return err
	})
}

// replaceDamaged puts the new copy in the place of each locked file that is lost, has another size, or belongs to a task
// that was given up: its sum may be wrong, and a new name for good bytes costs less than reading the old ones.
// It is done before the COMMIT and under the row's lock: the row is there, so the sweeper does not let the file go, and
// a rollback leaves good bytes in an old place. The upload's own copy stays until the COMMIT (design D8).
func (r *acceptRun) replaceDamaged(ctx context.Context) error {
	for k, stored := range r.files {
		if stored.path == "" {
			continue
		}
		whole, err := r.app.mount.Folder.Whole(stored.path, stored.bytes)
		if err != nil {
			return err
		}
		if whole && !stored.faulty {
			continue
		}
		copied, err := r.ownCopy(k)
		if err != nil {
			return err
		}
		switch {
		case copied != "" && copied != stored.path:
			if err := r.app.mount.Folder.Replace(ctx, stored.path, copied); err != nil {
				return fmt.Errorf("replace damaged file %s: %w", stored.path, files.SpaceError(err))
			}
			level := slog.LevelDebug
			if !whole {
				level = slog.LevelWarn // something happened to the upload folder
			}
			r.app.d.Log.Log(ctx, level, "ingest: stored file replaced by a new upload of the same bytes",
				"file", stored.path, "lost", !whole)
		case !whole:
			delete(r.files, k) // nothing to link: linkFiles refuses the upload
		}
	}
	return nil
}

// ownCopy is the received file of an upload of this batch with these bytes; empty: there is none on disk.
func (r *acceptRun) ownCopy(k sqldb.Pair) (string, error) {
	for _, w := range r.works {
		if !w.bringsCopy() || w.fileKey() != k {
			continue
		}
		if whole, err := r.app.mount.Folder.Whole(w.u.File.ID, w.u.File.Bytes); err != nil || whole {
			return w.u.File.ID, err
		}
	}
	return "", nil
}
