package fsck

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"
)

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
	c.young = max(0, all-len(c.unnamed))
	return err
}

// withoutRow are those of names that neither a stored file nor a version names.
func (c *checker) withoutRow(ctx context.Context, names []string) ([]string, error) {
	return c.unnamedBy(ctx, []string{"FilesOfRows", "FilesOfVersions"}, names)
}

// judgeOrphans is the part of I12 that finds files without a row: what had none at the first look and is still there.
func (c *checker) judgeOrphans(ctx context.Context) error {
	for part := range slices.Chunk(c.unnamed, filePage) {
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
			c.judged("I12")
			c.bad("I12", name, "file %s in the upload folder has no row", name)
			c.orphans = append(c.orphans, name)
		}
	}
	return nil
}

// removeOrphans removes files that nothing names even now. A younger one than the sweep's age is left to it: its upload may
// be under way after all.
func (r *repair) removeOrphans(ctx context.Context, names []string) error {
	if r.e.Files == nil || len(names) == 0 {
		return nil
	}
	m, err := r.e.DB.Moment(ctx)
	if err != nil {
		return err
	}
	old := map[string]bool{}
	err = r.e.Files.Stored(m.Now.Add(-DefaultFileAge), func(page []string) error {
		for _, name := range page {
			old[name] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for part := range slices.Chunk(names, filePage) {
		free, err := r.withoutRow(ctx, part)
		if err != nil {
			return err
		}
		for _, name := range free {
			if !old[name] {
				r.done.Left = append(r.done.Left, "file "+name+" is younger than a day; the sweep removes it when it is older")
				continue
			}
			if err := r.e.Files.Remove(name); err != nil {
				return err
			}
			r.done.Files++
		}
	}
	return nil
}
