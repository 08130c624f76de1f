package embedcache

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// group makes the batchers.
func (a *Cache) group() {
	shared := batcher.Config{Workers: ledgerWorkers, MinConcurrent: ledgerMinConcurrent, Most: cacheMost, MaxWait: cacheWatching}
	shared.Expect = func(waiting int) bool { return a.coming.Load() > int64(waiting) }
	shared.Gather = lookGather
	a.looks = batcher.New(shared, a.readTogether)
	shared.Gather = paidGather
	a.paid = batcher.New(shared, a.payTogether)
}

// Documents that are embedded side by side share looks into the embedding cache and its commits.
const (
	ledgerWorkers       = 2
	cacheMost           = 32 // looks or batches of vectors
	ledgerMinConcurrent = 8
	cacheWatching       = 100 * time.Millisecond
	// How long a look and a batch that was paid for wait for others, while documents are still before their rows in this process:
	// a transaction of its own costs the database more than its entries do. Batches in flight may be paid again after a crash.
	lookGather = 20 * time.Millisecond
	paidGather = 40 * time.Millisecond
)

// embeddingRead asks for one run's texts.
type embeddingRead struct {
	model  string
	hashes []TextHash
	known  map[TextHash]int // answered: the dimensions of those that the embedding cache has
}

// cachePaid is one batch of embeddings on its way into the embedding cache.
type cachePaid struct {
	model   string
	entries []Entry
}

// readTogether returns looks of one or more runs.
func (a *Cache) readTogether(ctx context.Context, b *batcher.Batch[*embeddingRead]) error {
	byModel := map[string][]TextHash{}
	for _, l := range b.Items() {
		byModel[l.model] = append(byModel[l.model], l.hashes...)
	}
	found := map[string]map[TextHash]int{}
	for model, hashes := range byModel {
		found[model] = map[TextHash]int{}
		for page := range slices.Chunk(distinct(hashes), CacheLookup) {
			if err := a.readInto(ctx, model, page, found[model]); err != nil {
				return err
			}
		}
	}
	for _, l := range b.Items() {
		l.known = make(map[TextHash]int, len(l.hashes))
		for _, h := range l.hashes {
			if dim, ok := found[l.model][h]; ok {
				l.known[h] = dim
			}
		}
	}
	return nil
}

// readInto adds the dimension of each of hashes that the embedding cache has for the model to out, and notes their use.
func (a *Cache) readInto(ctx context.Context, model string, hashes []TextHash, out map[TextHash]int) error {
	type entry struct {
		hash TextHash
		dim  int
		used taskstate.DBTime
	}
	found, err := sqldb.ReadAll(ctx, a.d.Store, "look into the ledger", a.q.List("LedgerKnown", len(hashes)), modelArgs(model, hashes), func(rows *sql.Rows) (entry, error) {
		var e entry
		var text string
		if err := rows.Scan(&text, &e.dim, &e.used); err != nil {
			return e, err
		}
		var err error
		e.hash, err = ParseHash(text)
		return e, err
	})
	if err != nil {
		return err
	}
	var stale []TextHash
	now := a.d.Clock()
	for _, e := range found {
		out[e.hash] = e.dim
		if now.Sub(e.used.Time) > cacheTouch {
			stale = append(stale, e.hash)
		}
	}
	return a.Used(ctx, model, stale)
}

// payTogether commits embeddings of one or more runs. Two runs may have paid for the same text at the same moment:
// its entry is the same whoever writes it, and one statement must not name it twice.
func (a *Cache) payTogether(ctx context.Context, b *batcher.Batch[*cachePaid]) error {
	type row struct {
		model string
		Entry
	}
	var rows []row
	for _, p := range b.Items() {
		for _, e := range p.entries {
			rows = append(rows, row{p.model, e})
		}
	}
	order := func(x, y row) int {
		return cmp.Or(cmp.Compare(x.model, y.model), slices.Compare(x.Hash[:], y.Hash[:]))
	}
	slices.SortStableFunc(rows, order) // the order of the key: two processes never wait for each other
	rows = slices.CompactFunc(rows, func(x, y row) bool { return order(x, y) == 0 })
	return a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		for page := range slices.Chunk(rows, cachePage) {
			params := make([]any, 0, len(page)*5)
			for _, e := range page {
				params = append(params, e.model, e.Hash.String(), len(e.Vector), encodeVector(e.Vector), m.Now)
			}
			if _, err := tx.ExecContext(ctx, a.q.Rows("LedgerInsert", len(page)), params...); err != nil {
				return err
			}
		}
		return nil
	})
}

// cacheTry is one try, whose time does not end with the run's.
func (a *Cache) cacheTry(ctx context.Context, model string, entries []Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerMaxWait)
	defer cancel()
	err := a.paid.Do(ctx, &cachePaid{model: model, entries: entries})[0]
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err)
	}
	return err
}

// distinct sorts hashes and drops those that come twice.
func distinct(hashes []TextHash) []TextHash {
	slices.SortFunc(hashes, func(x, y TextHash) int { return slices.Compare(x[:], y[:]) })
	return slices.Compact(hashes)
}
