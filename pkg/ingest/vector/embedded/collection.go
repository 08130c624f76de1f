package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// errDropped tells a writer that its collection was dropped under it.
var errDropped = errors.New("collection was dropped")

// collection is one base: its file and its table.
// The write lock (writing, of one place) guards the file and all that only writers touch; mu guards the table, and a writer takes it
// only to apply what is already on disk, so that a query never waits for a disk and never sees what may be lost.
type collection struct {
	store   *Store
	name    string
	writing chan struct{}

	file    *os.File
	size    int64 // bytes of file that are whole and on disk
	dead    int64 // rows and deletes in the file that nothing needs
	dirty   bool  // a write failed and what it left is not cut off yet
	renamed bool  // a rewrite's rename is not known to be on disk yet
	shutBy  error // not nil: closed or dropped

	commits *batcher.Batcher[*operation]

	mu    sync.RWMutex
	table *table
}

// operation is one caller's Upsert or Delete, encoded: the caller may go away before it is written.
type operation struct {
	payload []byte
	rows    int
	dim     int   // 0: a delete
	err     error // why this one alone was refused
}

// load reads a file into a table and cuts a torn end off.
func load(s *Store, name string, file *os.File) (*collection, error) {
	c := &collection{store: s, name: name, file: file, writing: make(chan struct{}, 1)}
	c.commits = batcher.New(batcher.Config{}, c.commitTogether)
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	header := make([]byte, headerBytes)
	if _, err := file.ReadAt(header, 0); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	dim, err := decodeHeader(header)
	if err != nil {
		return nil, err
	}
	c.table, c.size = newTable(dim), headerBytes
	if err := c.loadRecords(info.Size()); err != nil {
		return nil, err
	}
	s.bytes.Add(c.table.bytes())
	return c, nil
}

func (c *collection) loadRecords(size int64) error {
	var buf []byte
	for {
		payload, err := readRecord(c.file, c.size, size, buf)
		switch {
		case errors.Is(err, io.EOF) && c.size == size:
			return nil
		case errors.Is(err, errTorn):
			return c.cutTorn(size)
		case err != nil:
			return err
		}
		buf = payload[:0]
		if err := c.apply(payload); err != nil {
			return fmt.Errorf("%w: record at byte %d: %w", ErrDamaged, c.size, err)
		}
		c.size += recordHeader + int64(len(payload))
	}
}

// cutTorn removes a record that a crash left unfinished, but nothing that an intact record follows.
func (c *collection) cutTorn(size int64) error {
	intact, err := intactAfter(c.file, c.size, size)
	if err != nil {
		return err
	}
	if intact {
		return fmt.Errorf("%w: record at byte %d of %d", ErrDamaged, c.size, size)
	}
	c.store.opts.Log.Warn("vector store: cut an unfinished record", slog.String("file", c.name),
		slog.Int64("at_byte", c.size), slog.Int64("cut_bytes", size-c.size))
	c.dirty = true
	return c.repair()
}

// apply brings one payload into the table and counts what became dead. Called with mu held, or before c is shared.
func (c *collection) apply(payload []byte) error {
	return replay(payload, c.table.dim,
		func(id, document, birth string, values []float32) {
			before := len(c.table.rows)
			c.table.upsert(id, document, birth, values)
			if len(c.table.rows) == before {
				c.dead++
			}
		},
		func(id string) {
			before := len(c.table.rows)
			c.table.remove(id)
			c.dead += 1 + int64(before-len(c.table.rows)) // the delete itself and what it deleted
		})
}

// commit writes op and returns when it is on disk; operations that come while another record is written share the next one.
// When ctx ends first, op may or may not come to be written.
func (c *collection) commit(ctx context.Context, op *operation) error {
	if err := c.commits.Do(ctx, op)[0]; err != nil {
		return err
	}
	return op.err
}

// commitTogether commits operations as one record, up to groupBytes.
func (c *collection) commitTogether(_ context.Context, b *batcher.Batch[*operation]) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	payload := make([]byte, recordHeader)
	for i, op := range b.Items() {
		if i > 0 && len(payload)+len(op.payload) > groupBytes {
			b.Requeue(i)
			continue
		}
		if op.err = c.admit(op); op.err == nil {
			payload = append(payload, op.payload...)
		}
	}
	if len(payload) > recordHeader {
		if err := c.append(sealRecord(payload)); err != nil {
			return err
		}
	}
	c.compactIfWorth()
	return nil
}

// admit refuses what must not reach the file.
func (c *collection) admit(op *operation) error {
	switch {
	case c.shutBy != nil:
		return c.shutBy
	case op.dim == 0:
		return nil
	case op.dim != c.table.dim:
		return vector.DimensionFailure(op.dim, c.table.dim)
	case len(op.payload) > maxRecord/2:
		return ingest.Permanent(ingest.CodeVectorRejected, "", "%d rows are %d bytes, more than one write takes", op.rows, len(op.payload))
	}
	need := c.store.bytes.Load() + int64(op.rows)*rowBytes(op.dim)
	if limit := c.store.opts.MaxBytes; need > limit {
		return fmt.Errorf("%w: %d bytes of memory, VECTOR_MAX_BYTES is %d", ErrFull, need, limit)
	}
	return nil
}

// append writes one record, waits for the disk and then shows it to readers. The write lock is held.
func (c *collection) append(record []byte) error {
	if err := c.repair(); err != nil {
		return err
	}
	_, err := c.file.WriteAt(record, c.size)
	if err == nil {
		err = c.file.Sync()
	}
	if err != nil {
		// Nobody was told that it is written, so it must not come back at the next start.
		c.dirty = true
		return errors.Join(err, c.repair())
	}
	c.size += int64(len(record))
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.table.bytes()
	err = c.apply(record[recordHeader:])
	c.store.bytes.Add(c.table.bytes() - before)
	return err
}

// repair makes good what an earlier failure left open: it cuts the file back to what is known to be good.
func (c *collection) repair() error {
	if c.renamed {
		if err := c.store.syncDir(); err != nil {
			return fmt.Errorf("rename: %w", err)
		}
		c.renamed = false
	}
	if !c.dirty {
		return nil
	}
	if err := c.file.Truncate(c.size); err != nil {
		return fmt.Errorf("cut back: %w", err)
	}
	if err := c.file.Sync(); err != nil {
		return fmt.Errorf("cut back: %w", err)
	}
	c.dirty = false
	return nil
}

// shut closes the file; who still waits is refused. The write lock is held.
func (c *collection) shut(because error) error {
	if c.shutBy != nil {
		return nil
	}
	c.shutBy = because
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.bytes.Add(-c.table.bytes())
	c.table = newTable(c.table.dim)
	return c.file.Close()
}

// compactIfWorth rewrites the file when more than half of what is in it is dead. The write lock is held; readers go on.
// A rewrite that fails leaves the old file in use: nothing is lost but space.
func (c *collection) compactIfWorth() {
	live := int64(len(c.table.rows)) // only the holder of the write lock changes the table
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
