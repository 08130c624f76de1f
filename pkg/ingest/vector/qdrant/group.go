package qdrant

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

const (
	// writers is the most requests of one process that write to a collection at a time.
	writers = 4
	// worthwhile is how many calls are worth a request beside another one, maxWait how long fewer wait for that one.
	worthwhile = 16
	maxWait    = 250 * time.Millisecond
	// gather is how long rows wait for those of others: documents whose rows were committed together come together.
	gather = time.Millisecond
)

// batchUpserts makes a collection's batcher: one request takes along what all others wait to write. Each waits until its rows are
// in the log and in the collection, whatever their number.
func (s *Store) batchUpserts(c *collection) *batcher.Batcher[*vector.UpsertCall] {
	return batcher.New(batcher.Config{
		Workers: writers, MinConcurrent: worthwhile, MaxWait: maxWait, Gather: gather, Expect: func(int) bool { return true },
		Split: func(err error) bool { return ingest.AsFailure(err).Permanent }, // so that what is refused fails alone
	}, func(ctx context.Context, b *batcher.Batch[*vector.UpsertCall]) error {
		return s.upsertTogether(ctx, c, b)
	})
}

// upsertTogether writes the calls that fit into one request; the others lead the next one.
func (s *Store) upsertTogether(ctx context.Context, c *collection, b *batcher.Batch[*vector.UpsertCall]) error {
	room := rowsPerBody(b.Items()[0].Dim)
	rows := vector.LastWins(vector.Fitting(b, room))
	for len(rows) > 0 {
		n := min(len(rows), room)
		if err := s.write(ctx, c, rows[:n]); err != nil {
			return s.failure(ctx, err)
		}
		rows = rows[n:]
	}
	return nil
}

// rowsPerBody keeps a body under maxBody: a value takes at most 15 bytes with its comma, the ids at most 3·512 characters of 6
// bytes.
func rowsPerBody(dim int) int {
	return max(1, min(batchRows, maxBody/(dim*15+3*6*vector.MaxIDBytes+200)))
}
