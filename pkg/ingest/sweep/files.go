package sweep

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// orphanAge is how old a file without a row must be: no request takes that long (design D8, UPLOAD_MAX_DURATION).
	orphanAge = 24 * time.Hour
	// tempAge is how long nothing was written to a temporary file whose upload is given up.
	tempAge = 6 * time.Hour
)

// unlinkAll lets go every file of a deleted document.
func (a *Sweeper) unlinkAll(ctx context.Context, document string, s *Swept) error {
	return a.unlink(ctx, document, "DocumentFiles", "DocumentUnlink", s, func(context.Context, taskstate.Tx) ([]any, error) {
		return []any{document}, nil
	}, func(ctx context.Context, tx taskstate.Tx, paths []string) error {
		return receipts{a}.noteFiles(ctx, tx, document, paths)
	})
}

// unlinkOutdated lets go the files of closed versions that no replay can want, since a later upload is visible, but that of the version
// that a rollback goes back to.
func (a *Sweeper) unlinkOutdated(ctx context.Context, document string, s *Swept) error {
	return a.unlink(ctx, document, "OutdatedFiles", "OutdatedUnlink", s, func(ctx context.Context, tx taskstate.Tx) ([]any, error) {
		kept, _, err := a.cat.Kept(ctx, tx, document)
		return []any{document, kept}, err
	}, nil)
}

// unlink removes a document's links to files, and each file's row when no other link is left, both under the row's lock;
// the file itself goes after the commit. A crash in between leaves a file without a row, which goes after a day.
// which gives the parameters of both statements, under the document's lock; note, unless it is nil, writes down what will be removed.
func (a *Sweeper) unlink(
	ctx context.Context, document, find, cut string, s *Swept, which func(context.Context, taskstate.Tx) ([]any, error),
	note func(ctx context.Context, tx taskstate.Tx, paths []string) error,
) error {
	if err := a.mount.CheckFolder(ctx); err != nil {
		return fmt.Errorf("let files go: %w", err) // what is not seen is not removed
	}
	var paths []string
	err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		paths = nil
		if _, err := a.cat.LockDocuments(ctx, tx, []string{document}); err != nil {
			return err
		}
		params, err := which(ctx, tx)
		if err != nil {
			return err
		}
		files, err := sqldb.Texts(ctx, tx, a.q.Get(find), params...)
		if err != nil || len(files) == 0 {
			return err
		}
		locked := map[string]string{}
		for _, id := range files {
			path, err := sqldb.Texts(ctx, tx, a.q.Get("FileLock"), id)
			if err != nil {
				return err
			}
			if len(path) == 1 {
				locked[id] = path[0]
			}
		}
		if err := a.cat.ExecList(ctx, tx, cut, files, params...); err != nil {
			return err
		}
		for _, id := range files {
			linked, err := sqldb.Texts(ctx, tx, a.q.Get("FileLinked"), id)
			if err != nil {
				return err
			}
			if len(linked) > 0 {
				continue
			}
			if _, err := tx.ExecContext(ctx, a.q.Get("FileDelete"), id); err != nil {
				return err
			}
			if path, ok := locked[id]; ok {
				paths = append(paths, path)
			}
		}
		if note == nil || len(paths) == 0 {
			return nil
		}
		return note(ctx, tx, paths)
	})
	if err != nil {
		return fmt.Errorf("let files go: %w", err)
	}
	for _, path := range paths {
		crash.Point("gc.before_file")
		a.mount.Drop(ctx, path)
		crash.Point("gc.after_file")
	}
	s.Files += len(paths)
	return nil
}

// SweepFiles removes files that neither a row nor a version names, that are no open task's and that are older than a day, and temporary files of uploads that were given up.
// It lists the whole upload folder and returns how many files it removed. The day is by the database's clock: one process
// whose own clock is wrong would otherwise remove what the others have just received.
func (a *Sweeper) SweepFiles(ctx context.Context) (int, error) {
	if err := a.mount.CheckFolder(ctx); err != nil {
		return 0, fmt.Errorf("sweep the upload folder: %w", err) // its files may be another database's
	}
	now, err := a.cat.Moment(ctx)
	if err != nil {
		return 0, fmt.Errorf("sweep the upload folder: %w", err)
	}
	n := 0
	orphans := now.Add(-orphanAge)
	err = a.mount.Folder.Older(now.Add(-tempAge), func(names []string) error {
		var stored []string
		for _, name := range names {
			if strings.HasPrefix(name, files.TempPrefix) {
				a.mount.Drop(ctx, name)
				n++
				continue
			}
			if age, err := a.mount.Folder.WrittenAt(name); err == nil && age.Before(orphans) {
				stored = append(stored, name)
			}
		}
		if len(stored) == 0 {
			return ctx.Err()
		}
		known, err := sqldb.Read(ctx, a.d.Store, func(ctx context.Context, db taskstate.Tx) (map[string]bool, error) {
			known, err := a.cat.Set(ctx, db, "FilesKnown", stored)
			if err != nil {
				return nil, err
			}
			for _, names := range []string{"FilesNamed", "FilesOfTasks"} {
				named, err := a.cat.Set(ctx, db, names, stored)
				if err != nil {
					return nil, err
				}
				maps.Copy(known, named)
			}
			return known, nil
		})
		if err != nil {
			return fmt.Errorf("look for the files' rows: %w", err)
		}
		for _, name := range stored {
			if !known[name] {
				a.mount.Drop(ctx, name)
				n++
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return n, fmt.Errorf("sweep the upload folder: %w", err)
	}
	return n, nil
}
