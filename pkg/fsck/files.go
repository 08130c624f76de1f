package fsck

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

const filePage = 500

// fileRow is a stored file as its row has it.
type fileRow struct {
	id, sha, path string
	bytes         int64
}

// readFiles is the part of I12 that reads the upload folder: every row's file is there with its recorded SHA-256.
func (c *checker) readFiles(ctx context.Context) error {
	if c.e.Files == nil {
		return nil
	}
	for after := ""; ; {
		page, err := c.files(ctx, "Files", after, filePage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, f := range page {
			after = f.id
			if err := c.file(ctx, f); err != nil {
				return fmt.Errorf("file %s: %w", f.id, err)
			}
		}
	}
}

// files reads rows.
func (c *checker) files(ctx context.Context, query string, args ...any) ([]fileRow, error) {
	var out []fileRow
	err := c.each(ctx, c.q.Get(query), args, func(scan func(...any) error) error {
		var f fileRow
		err := scan(&f.id, &f.sha, &f.bytes, &f.path)
		out = append(out, f)
		return err
	})
	return out, err
}

// file judges one; a row that is gone by now takes its file with it.
func (c *checker) file(ctx context.Context, f fileRow) error {
	problem, err := c.fileProblem(f)
	if err != nil {
		return err
	}
	if problem != "" {
		if again, err := c.files(ctx, "FileByID", f.id); err != nil || len(again) == 0 {
			return err
		}
	}
	c.verdict(problem == "", "I12", f.id, "stored file %s", problem)
	return nil
}

// fileProblem compares a file with its row.
func (c *checker) fileProblem(f fileRow) (string, error) {
	h, err := c.e.Files.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "is missing in the upload folder", nil
	}
	if err != nil {
		return "", err
	}
	defer h.Close() //nolint:errcheck // only read
	sum := sha256.New()
	n, err := io.Copy(sum, h)
	if err != nil {
		return "", err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != f.bytes || got != f.sha {
		return fmt.Sprintf("has %d bytes with SHA-256 %s, its row says %d and %s", n, got, f.bytes, f.sha), nil
	}
	return "", nil
}
