package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/taskstate"
)

// vectorBatch is how many vectors go to the store at once: Chroma was fastest with 100 to 250 (measured).
const vectorBatch = 200

// writeVectors upserts every vector that was born in this version, after all its rows were committed (design D8).
// Rows whose vector an earlier attempt has marked as stored are spared.
func (r indexing) writeVectors(ctx context.Context) error {
	var todo []int
	for i, p := range r.plan.items {
		if p.birth == r.work.version && !r.plan.stored[i] {
			todo = append(todo, i)
		}
	}
	total := len(r.plan.items)
	done := total - len(todo)
	report := func() {
		r.report(ingest.StageIndex, within(percentRows, percentIndex, done, total), done, total)
	}
	report()
	batches := slices.Collect(slices.Chunk(todo, vectorBatch))
	for b, part := range batches {
		if err := r.upsert(ctx, part, report); err != nil {
			return fmt.Errorf("store vectors batch %d/%d: %w", b+1, len(batches), err)
		}
		if err := crash.Fault("worker.after_upsert"); err != nil {
			return err
		}
		if b+1 < len(batches) {
			if err := r.markStored(ctx, part); err != nil {
				return fmt.Errorf("mark vectors batch %d/%d: %w", b+1, len(batches), err)
			}
			crash.Point("worker.after_stored_mark")
		}
		done += len(part)
		report()
	}
	return nil
}

// upsert writes the vectors of some segments when it is their turn.
func (r indexing) upsert(ctx context.Context, indexes []int, waiting func()) error {
	leave, err := r.w.vectors.enter(ctx, len(indexes), waiting)
	if err != nil {
		return err
	}
	defer leave()
	values, err := paying(r).vectorsOf(ctx, indexes)
	if err != nil {
		return err
	}
	rows := make([]ingest.Vector, len(indexes))
	for n, i := range indexes {
		p := r.plan.items[i]
		rows[n] = ingest.Vector{ID: p.vector, DocumentID: r.work.document, Birth: p.birth, Values: values[r.spool.items[i].hash]}
	}
	return r.w.d.Vectors.Upsert(ctx, cmp.Or(r.work.collection, r.work.base), rows)
}

// markStored spares a later attempt these vectors. The last batch needs no mark: the finish follows.
func (r indexing) markStored(ctx context.Context, indexes []int) error {
	return taskstate.WithClaim(ctx, r.w.d.Store, r.job.Task.ID, r.job.Token, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		params := make([]any, 0, len(indexes)+1)
		params = append(params, r.work.version)
		for _, i := range indexes {
			params = append(params, i)
		}
		_, err := tx.ExecContext(ctx, r.w.q.List("RowsStored", len(indexes)), params...)
		return err
	})
}

// vectorsOf returns the vectors of segments: kept in memory, out of the embedding cache, or paid for again if the embedding cache lost them.
func (r paying) vectorsOf(ctx context.Context, indexes []int) (map[embedcache.TextHash][]float32, error) {
	out := make(map[embedcache.TextHash][]float32, len(indexes))
	var unread []embedcache.TextHash
	first := map[embedcache.TextHash]int{}
	for _, i := range indexes {
		h := r.spool.items[i].hash
		if _, twice := first[h]; twice {
			continue
		}
		first[h] = i
		if v := r.vectors.get(h); v != nil {
			out[h] = v
			continue
		}
		unread = append(unread, h)
	}
	if len(unread) == 0 {
		return out, nil
	}
	found, err := r.w.cache.Vectors(ctx, r.embedder.Model().Key, unread)
	if err != nil {
		return nil, err
	}
	for h, v := range found {
		if r.fits(len(v)) {
			out[h] = v
		}
	}
	var lost []int
	for _, h := range unread {
		if out[h] == nil {
			lost = append(lost, first[h])
		}
	}
	return out, r.payAgain(ctx, lost, out)
}

// payAgain embeds texts whose embedding cache entries are gone into out.
func (r paying) payAgain(ctx context.Context, indexes []int, out map[embedcache.TextHash][]float32) error {
	for part := range slices.Chunk(indexes, max(1, r.embedder.BatchSize())) {
		entries, err := r.embed(ctx, part, "again")
		if err != nil {
			return fmt.Errorf("embed again: %w", err)
		}
		for _, e := range entries {
			out[e.Hash] = e.Vector
		}
	}
	return nil
}
