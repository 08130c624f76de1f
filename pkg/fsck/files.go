package fsck

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
)

// fileRow is a stored file as its row has it.
type fileRow struct {
	id, sha, path string
	bytes         int64
}

// scanFile reads the columns of Files.
func scanFile(rows *sql.Rows) (f fileRow, err error) {
	err = rows.Scan(&f.id, &f.sha, &f.bytes, &f.path)
	return f, err
}

// readFiles is the part of I12 that reads the upload folder: every row's file is there with its recorded SHA-256.
func (c *checker) readFiles(ctx context.Context) error {
	if c.e.Files == nil {
		return nil
	}
	return pages(ctx, c, "Files", scanFile, func(f fileRow) string { return f.id }, func(ctx context.Context, page []fileRow) error {
		for _, f := range page {
			if err := c.file(ctx, f); err != nil {
				return fmt.Errorf("file %s: %w", f.id, err)
			}
		}
		return nil
	})
}

// file compares one with its row; a row that is gone by now takes its file with it.
func (c *checker) file(ctx context.Context, f fileRow) error {
	sum, size, err := c.onDisk(f.path)
	if err != nil {
		return err
	}
	whole := size == f.bytes && sum == f.sha
	if !whole {
		if again, err := sqldb.Collect(ctx, c.db, scanFile, c.q.Get("FileByID"), f.id); err != nil || len(again) == 0 {
			return err
		}
	}
	if sum == "" {
		c.verdict(false, "I12", f.id, "stored file is missing in the upload folder")
		return nil
	}
	c.verdict(whole, "I12", f.id, "stored file has %d bytes with SHA-256 %s, its row says %d and %s", size, sum, f.bytes, f.sha)
	return nil
}

// onDisk reads a stored file; an empty sum when it is not there.
func (c *checker) onDisk(name string) (sum string, size int64, err error) {
	if c.e.Files == nil {
		return "", 0, nil
	}
	h, err := c.e.Files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	defer h.Close() //nolint:errcheck // only read
	all := sha256.New()
	if size, err = io.Copy(all, h); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(all.Sum(nil)), size, nil
}

// listFiles looks for files without a row. The folder is listed before the rows are read; what has none is looked at again
// at the end (judgeOrphans).
func (c *checker) listFiles(ctx context.Context) error {
	if c.e.Files == nil {
		return nil
	}
	old := c.now.Add(-c.o.FileAge)
	if c.o.FileAge < 0 {
		old = c.now.Add(time.Hour) // clocks of file servers differ
	}
	all := 0
	err := c.e.Files.Stored(c.now.Add(time.Hour), func(names []string) error {
		free, err := c.withoutRow(ctx, names)
		all += len(free)
		return err
	})
	if err != nil || all == 0 {
		return err
	}
	err = c.e.Files.Stored(old, func(names []string) error {
		free, err := c.withoutRow(ctx, names)
		c.unnamed = append(c.unnamed, free[:min(len(free), keptFindings-len(c.unnamed))]...)
		return err
	})
	c.Young = max(0, all-len(c.unnamed))
	return err
}

// withoutRow are those of names that neither a stored file nor a version names, and that are no open task's.
func (c *checker) withoutRow(ctx context.Context, names []string) ([]string, error) {
	return c.unnamedBy(ctx, []string{"FilesOfRows", "FilesOfVersions", "FilesOfTasks"}, names)
}

// judgeOrphans is the part of I12 that finds files without a row: what had none at the first look and is still there.
func (c *checker) judgeOrphans(ctx context.Context) error {
	for part := range slices.Chunk(c.unnamed, pageSize) {
		free, err := c.withoutRow(ctx, part)
		if err != nil {
			return err
		}
		for _, name := range free {
			h, err := c.e.Files.Open(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			_ = h.Close() // nothing was read
			c.verdict(false, "I12", name, "file %s in the upload folder has no row", name)
			c.Orphans = append(c.Orphans, name)
		}
	}
	return nil
}
