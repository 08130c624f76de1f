package embedded

import (
	"log/slog"
	"os"
)

// compactIfWorth rewrites the file when more than half of what is in it is dead. The lane is held; readers go on.
// A rewrite that fails leaves the old file in use: nothing is lost but space.
func (c *collection) compactIfWorth() {
	live := int64(len(c.table.rows)) // only the lane's holder changes the table
	if c.shutBy != nil || c.dead <= live || c.size < c.store.opts.CompactBytes {
		return
	}
	before := c.size
	if err := c.compact(); err != nil {
		// Do not try again at every write: wait until as much again is dead.
		c.dead = 0
		c.store.opts.Log.Warn("vector store: rewrite failed, old file stays", slog.String("file", c.name), slog.Any("error", err))
		return
	}
	c.store.opts.Log.Info("vector store: rewrote", slog.String("file", c.name), slog.Int64("rows", live),
		slog.Int64("bytes_before", before), slog.Int64("bytes", c.size))
}

func (c *collection) compact() error {
	temp, err := c.store.root.OpenFile(c.name+tempSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	size, err := c.writeLive(temp)
	if err == nil {
		err = temp.Sync()
	}
	if err != nil {
		_ = temp.Close()
		_ = c.store.root.Remove(c.name + tempSuffix)
		return err
	}
	if err := c.store.root.Rename(c.name+tempSuffix, c.name); err != nil {
		_ = temp.Close()
		return err
	}
	// From here the new file is the one under the name, whatever the directory's fsync says: all further
	// writes must go to it. Should a power cut undo the rename, the old file would miss them; so the
	// error is repeated to writers by repair until the directory is on disk.
	_ = c.file.Close()
	c.file, c.size, c.dead, c.dirty = temp, size, 0, false
	if err := c.store.syncDir(); err != nil {
		c.renamed = true
		return err
	}
	return nil
}

// writeLive writes header and live rows, in records of about groupBytes.
func (c *collection) writeLive(temp *os.File) (size int64, err error) {
	write := func(b []byte) {
		if err == nil {
			_, err = temp.Write(b)
			size += int64(len(b))
		}
	}
	write(encodeHeader(c.table.dim))
	record := make([]byte, recordHeader, groupBytes+groupBytes/8)
	for i := range c.table.rows {
		record = appendUpsert(record, c.table.vector(i))
		if len(record) >= groupBytes {
			write(sealRecord(record))
			record = record[:recordHeader]
		}
	}
	if len(record) > recordHeader {
		write(sealRecord(record))
	}
	return size, err
}
