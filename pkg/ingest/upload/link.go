package upload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/sqldb"
)

// storedFile is a row of stored_file that holds an upload's bytes. There are several of the same bytes where they were first accepted at
// the same moment by two processes.
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
		if len(r.files[k]) == 0 && w.u.Kept != nil { // let go since it was looked for
			w.refuse(ingest.ErrVersionGone)
			return
		}
		if len(r.files[k]) == 0 { // or it went before it was locked
			whole, lookErr := r.app.mount.Folder.Whole(f.ID, f.Bytes)
			if err = errors.Join(err, lookErr); !whole {
				w.refuse(ingest.ErrUploadExpired)
				return
			}
			r.files[k] = []*storedFile{{id: f.ID, path: f.ID}}
			params = append(params, f.ID, k[0], f.SHA256, f.Bytes, f.Name, f.MediaType, f.ID, r.m.Now)
			rows++
		}
		stored := r.files[k][0]
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

// lockFiles locks the rows that hold the bytes of written and answered uploads, learns their paths, and forgets those that are gone.
func (r *acceptRun) lockFiles(ctx context.Context) error {
	wanted := map[string]*storedFile{}
	for _, w := range r.works {
		if w.bringsCopy() {
			for _, stored := range r.files[w.fileKey()] {
				wanted[stored.id] = stored
			}
		}
	}
	err := r.list(ctx, "lock stored files", "FilesLock", maps.Keys(wanted), func(rows *sql.Rows) error {
		var f storedFile
		err := rows.Scan(&f.id, &f.path, &f.bytes, &f.faulty)
		*wanted[f.id] = f
		return err
	})
	for k, all := range r.files {
		r.files[k] = slices.DeleteFunc(all, func(f *storedFile) bool { return f.path == "" })
	}
	return err
}

// replaceDamaged puts the new copy in the place of each locked file that is lost, has another size, or belongs to a task
// that was given up: its sum may be wrong, and a new name for good bytes costs less than reading the old ones.
// It is done before the COMMIT and under the row's lock: the row is there, so the sweeper does not let the file go, and
// a rollback leaves good bytes in an old place. The upload's own copy stays until the COMMIT (design D8).
func (r *acceptRun) replaceDamaged(ctx context.Context) error {
	for k, all := range r.files {
		var there []*storedFile // what cannot be linked is left out
		for _, stored := range all {
			whole, err := r.replaceIfDamaged(ctx, k, stored)
			if err != nil {
				return err
			}
			if whole {
				there = append(there, stored)
			}
		}
		r.files[k] = there
	}
	return nil
}

// replaceIfDamaged reports whether a file is whole in the end.
func (r *acceptRun) replaceIfDamaged(ctx context.Context, k sqldb.Pair, stored *storedFile) (whole bool, err error) {
	whole, err = r.app.mount.Folder.Whole(stored.path, stored.bytes)
	if err != nil || whole && !stored.faulty {
		return whole, err
	}
	copied, err := r.ownCopy(k)
	if err != nil || copied == "" || copied == stored.path {
		return whole, err
	}
	if err := r.app.mount.Folder.Replace(ctx, stored.path, copied); err != nil {
		return false, fmt.Errorf("replace damaged file %s: %w", stored.path, files.SpaceError(err))
	}
	level := slog.LevelDebug
	if !whole {
		level = slog.LevelWarn // something happened to the upload folder
	}
	r.app.d.Log.Log(ctx, level, "ingest: stored file replaced by a new upload of the same bytes", "file", stored.path, "lost", !whole)
	return true, nil
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
