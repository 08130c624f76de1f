package chroma

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// gather is how long rows wait for those of others: documents whose rows were committed together come together.
const gather = time.Millisecond

// batchUpserts makes a collection's batcher: one request takes along what all others wait to write. Many small documents
// would else be written one request each, one after the other (measured: 30–60 a second).
func (s *Store) batchUpserts(c *collection) *batcher.Batcher[*vector.UpsertCall] {
	return batcher.New(batcher.Config{
		Gather: gather, Expect: func(int) bool { return true },
		Split: func(err error) bool { return ingest.AsFailure(err).Permanent }, // so that what is refused fails alone
	}, func(ctx context.Context, b *batcher.Batch[*vector.UpsertCall]) error {
		return s.upsertTogether(ctx, c, b)
	})
}

// Upsert writes rows in requests of at most 400; see ingest.VectorStore.
// A failure may leave some batches written: the same call again completes it.
func (s *Store) Upsert(ctx context.Context, base string, rows []ingest.Vector) error {
	if len(rows) == 0 {
		return nil
	}
	dim, err := vector.CheckRows(rows)
	if err != nil {
		return err
	}
	return s.collection(base).upserts.Do(ctx, &vector.UpsertCall{Rows: rows, Dim: dim})[0]
}

// upsertTogether writes the calls that fit into one request; the others lead the next one.
func (s *Store) upsertTogether(ctx context.Context, c *collection, b *batcher.Batch[*vector.UpsertCall]) error {
	release, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer release()
	dim := b.Items()[0].Dim
	return s.failure(ctx, s.upsertAll(ctx, c, vector.Fitting(b, c.room(dim)), dim))
}

// upsertAll writes rows of one dimension in requests of a good size.
func (s *Store) upsertAll(ctx context.Context, c *collection, rows []ingest.Vector, dim int) error {
	rows = vector.LastWins(rows)
	for len(rows) > 0 {
		n := min(len(rows), c.room(dim))
		began := s.now()
		err := s.upsert(ctx, c, rows[:n])
		c.paced(n, s.now().Sub(began), err == nil)
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// room is how many rows one request takes now.
func (c *collection) room(dim int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(rowsPerBody(dim), c.most)
}

// paced notes how long a request of n rows took. A server that is slow, or was given up, gets half as many rows at a time,
// so that nobody waits long for one answer; full requests that are quick make them larger again.
func (c *collection) paced(n int, took time.Duration, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case took > slowWrite:
		c.most = max(leastRows, min(c.most, n)/2)
	case written && took < slowWrite/4 && n >= c.most:
		c.most = min(batchRows, 2*c.most)
	}
}
