package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The vectors that runs keep between the embedding and the vector store, bytes; the rest is read from the embedding cache.
const (
	cacheBytes  = 4 << 20  // of one run
	cachedBytes = 16 << 20 // of all runs of the process
)

// vectorCache keeps fresh vectors of one run. It is safe for concurrent use.
type vectorCache struct {
	all *atomic.Int64 // bytes that the caches of all runs hold

	mu    sync.Mutex
	bytes int64
	by    map[embedcache.TextHash][]float32
}

func newVectorCache(all *atomic.Int64) *vectorCache {
	return &vectorCache{all: all, by: map[embedcache.TextHash][]float32{}}
}

// put keeps a vector if there is room.
func (c *vectorCache) put(h embedcache.TextHash, v []float32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int64(len(v) * embedcache.BytesFloat)
	if _, twice := c.by[h]; twice || c.bytes+n > cacheBytes {
		return
	}
	if c.all.Add(n) > cachedBytes {
		c.all.Add(-n)
		return
	}
	c.bytes += n
	c.by[h] = v
}

// close gives the room to others.
func (c *vectorCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Add(-c.bytes)
	c.bytes, c.by = 0, nil
}

// get returns a vector that was kept, or nil.
func (c *vectorCache) get(h embedcache.TextHash) []float32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[h]
}

// embedMissing pays for the texts of new vectors that the embedding cache does not have; every batch is committed before the next step.
func (r paying) embedMissing(ctx context.Context) error {
	total := len(r.plan.items)
	r.report(ingest.StageEmbed, percentExtract, 0, total)
	missing, err := r.missingTexts(ctx)
	if err != nil {
		return err
	}
	batches := slices.Collect(slices.Chunk(missing, max(1, r.embedder.BatchSize())))
	var done atomic.Int64
	done.Store(int64(total - len(missing)))
	report := func() {
		n := int(done.Load())
		r.report(ingest.StageEmbed, within(percentExtract, percentEmbed, n, total), n, total)
	}
	report()
	// A failed batch starts no further one, but those in flight end in peace: they are paid for.
	var group errgroup.Group
	var failed atomic.Bool
	group.SetLimit(r.w.cfg.EmbedParallel)
	for b, part := range batches {
		if failed.Load() || ctx.Err() != nil {
			break
		}
		group.Go(guarded("embed", func() error {
			leave, err := r.w.embeds.enter(ctx, 1, report)
			if err != nil {
				return err
			}
			defer leave()
			if failed.Load() {
				return nil
			}
			err = r.staged(ctx, "embed batch", func(ctx context.Context) error {
				due, err := r.unpaid(ctx, part)
				if err == nil && len(due) > 0 {
					_, err = r.embed(ctx, due, fmt.Sprintf("%d/%d", b+1, len(batches)))
				}
				return err
			})
			if err != nil {
				failed.Store(true)
				return fmt.Errorf("embed batch %d/%d: %w", b+1, len(batches), err)
			}
			done.Add(int64(len(part)))
			report()
			return nil
		}))
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// missingTexts are the indexes of segments whose text has to be paid for, each text once.
func (r paying) missingTexts(ctx context.Context) ([]int, error) {
	r.looked = r.w.d.Clock()
	seen := make(map[embedcache.TextHash]struct{}, len(r.plan.items))
	var wanted, missing []int
	for i, p := range r.plan.items {
		h := r.spool.items[i].hash
		if _, twice := seen[h]; twice || p.birth != r.work.version || r.vectors.get(h) != nil {
			continue
		}
		seen[h] = struct{}{}
		wanted = append(wanted, i)
	}
	for page := range slices.Chunk(wanted, embedcache.CacheLookup) {
		part, err := r.unknown(ctx, page, r.fits)
		if err != nil {
			return nil, err
		}
		missing = append(missing, part...)
		r.report(ingest.StageEmbed, percentExtract, 0, len(r.plan.items))
	}
	return missing, nil
}

// unknown are those segments whose text the embedding cache does not have with a dimension that will do.
func (r paying) unknown(ctx context.Context, indexes []int, does func(dim int) bool) ([]int, error) {
	known, err := r.w.cache.Known(ctx, r.embedder.Model().Key, r.hashes(indexes))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(indexes), func(i int) bool {
		dim, ok := known[r.spool.items[i].hash]
		return ok && does(dim)
	}), nil
}

// unpaid leaves out texts that stand in the embedding cache by now: a run that was paused beyond its lease does not know yet that it
// has an heir, and must not pay for what that one has paid for. What does not fit is found when the vectors are read.
// The heartbeat leaves a lease at least a third of its time, so a look that is younger was before any heir's first payment.
func (r paying) unpaid(ctx context.Context, indexes []int) ([]int, error) {
	if elapsed(r.looked, r.w.d.Clock()) < r.w.d.Policy.Lease/3 {
		return indexes, nil
	}
	return r.unknown(ctx, indexes, func(int) bool { return true })
}

// elapsed is the time between two looks at the clock, also where one of its readings stands still: the monotonic one does
// while a machine sleeps.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// fits reports whether an embedding cache entry of that dimension can be used in this run, and remembers the first one.
func (r paying) fits(dim int) bool {
	want := r.dim
	if want == 0 {
		want = r.work.baseModel.Dim
	}
	if want == 0 {
		want = r.embedder.Model().Dim
	}
	if want == 0 {
		r.dim = dim
	}
	return want == 0 || dim == want
}

// hashes are the text hashes of segments.
func (r paying) hashes(indexes []int) []embedcache.TextHash {
	out := make([]embedcache.TextHash, len(indexes))
	for n, i := range indexes {
		out[n] = r.spool.items[i].hash
	}
	return out
}

// embed pays for one batch, commits it to the embedding cache and returns it.
func (r paying) embed(ctx context.Context, indexes []int, batch string) ([]embedcache.Entry, error) {
	texts := make([]string, len(indexes))
	for n, i := range indexes {
		var err error
		if texts[n], err = r.spool.text(i); err != nil {
			return nil, err
		}
	}
	if tag := r.w.d.TagEmbed; tag != nil {
		ctx = tag(ctx, r.job.Task.ID, r.job.Token.Fence, batch)
	}
	if err := crash.Fault("worker.before_embed"); err != nil {
		return nil, err
	}
	vectors, err := oneEach(ctx, r.embedder, texts)
	if err != nil {
		return nil, err
	}
	if err := crash.Fault("worker.after_embed"); err != nil {
		return nil, err
	}
	entries := make([]embedcache.Entry, len(indexes))
	for n, i := range indexes {
		entries[n] = embedcache.Entry{Hash: r.spool.items[i].hash, Vector: vectors[n]}
	}
	if err := r.w.cache.Add(ctx, r.embedder.Model().Key, entries); err != nil {
		return nil, err
	}
	if err := crash.Fault("worker.after_ledger"); err != nil {
		return nil, err
	}
	for _, e := range entries {
		r.vectors.put(e.Hash, e.Vector)
	}
	return entries, nil
}

// oneEach embeds texts. Beside the Embedder's errors: CodeEmbed, transient, when there is not one vector for each text.
func oneEach(ctx context.Context, e ingest.Embedder, texts []string) ([][]float32, error) {
	vectors, err := e.Embed(ctx, texts)
	if err == nil && len(vectors) != len(texts) {
		err = ingest.Transient(ingest.CodeEmbed, "%d vectors came for %d texts", len(vectors), len(texts))
	}
	return vectors, err
}

// agreeOnModel makes the base's model that of its first vectors, and refuses vectors that do not fit it.
func (r paying) agreeOnModel(ctx context.Context) error {
	born, err := r.firstVector(ctx)
	if err != nil || born == nil {
		return err
	}
	mine := ingest.Model{Key: r.embedder.Model().Key, Dim: len(born)}
	base := r.work.baseModel
	if base.Key == "" || base.Dim == 0 {
		wish := &modelWish{base: r.work.base, mine: mine}
		if err := r.w.models.Do(ctx, wish)[0]; err != nil {
			return fmt.Errorf("set the knowledge base's model: %w", err)
		}
		base = wish.agreed
		r.work.baseModel = base
	}
	r.dim = mine.Dim
	if base == mine {
		return nil
	}
	return otherModel(base, mine)
}

// firstVector is a vector of this run, or nil when it needs no new one.
func (r paying) firstVector(ctx context.Context) ([]float32, error) {
	i := slices.IndexFunc(r.plan.items, func(p planned) bool { return p.birth == r.work.version })
	if i < 0 {
		return nil, nil
	}
	got, err := r.vectorsOf(ctx, []int{i})
	return got[r.spool.items[i].hash], err
}

// modelWish is a run whose base had no model when it was loaded.
type modelWish struct {
	base   string
	mine   ingest.Model
	agreed ingest.Model // the result: the base's model
}

// agreeTogether makes the model of each base that of its first wish, unless it has one by now. The first documents of a base
// come to this together, and one of them is enough.
func (w *Worker) agreeTogether(ctx context.Context, b *batcher.Batch[*modelWish]) error {
	first := map[string]ingest.Model{}
	for _, wish := range b.Items() {
		if _, named := first[wish.base]; !named {
			first[wish.base] = wish.mine
		}
	}
	agreed := make(map[string]ingest.Model, len(first))
	err := w.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		for _, base := range slices.Sorted(maps.Keys(first)) { // in one order: two processes never wait for each other
			mine, is := first[base], ingest.Model{}
			if _, err := tx.ExecContext(ctx, w.q.Get("BaseSetModel"), mine.Key, mine.Dim, m.Now, base); err != nil {
				return err
			}
			if err := tx.QueryRowContext(ctx, w.q.Get("BaseModel"), base).Scan(&is.Key, &is.Dim); err != nil {
				return err
			}
			agreed[base] = is
		}
		return nil
	})
	for _, wish := range b.Items() {
		wish.agreed = agreed[wish.base]
	}
	return err
}
