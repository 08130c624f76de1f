// Package embedcache keeps embeddings that were paid for, by content, and sweeps those that nobody used for long.
package embedcache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Cache keeps embeddings that were paid for (design D10). It is safe for concurrent use.
type Cache struct {
	d      ingest.Deps
	q      sqldb.Queries
	coming *atomic.Int64 // runs of this process that have not come to their rows yet
	looks  *batcher.Batcher[*embeddingRead]
	paid   *batcher.Batcher[*cachePaid]
}

// New makes a Cache; coming counts the runs that may ask soon.
func New(d ingest.Deps, q sqldb.Queries, coming *atomic.Int64) *Cache {
	a := &Cache{d: d, q: q, coming: coming}
	shared := batcher.Config{Workers: ledgerWorkers, MinConcurrent: ledgerMinConcurrent, Most: cacheMost, MaxWait: cacheWatching}
	shared.Expect = func(waiting int) bool { return a.coming.Load() > int64(waiting) }
	shared.Gather = lookGather
	a.looks = batcher.New(shared, a.readTogether)
	shared.Gather = paidGather
	a.paid = batcher.New(shared, a.payTogether)
	return a
}

const (
	CacheLookup = 500            // hashes of one look-up
	cachePage   = 200            // entries of one statement: 2.4 MB at 3,072 dimensions, below every server's limit
	sweepPage   = 500            // entries of one look of the sweep
	cacheKeep   = 24 * time.Hour // after the last use (design D10)
	// cacheTouch is how old a use may look before it is written again: a look-up is not a write each time.
	cacheTouch = time.Hour
	// ledgerMaxWait bounds one try to commit what was paid for, also when the run's own time is over.
	ledgerMaxWait = 5 * time.Second
	// While the run has time the commit is tried so often, with waits that double up to the longest one: longer than a short
	// absence of the database, or the locks of a session that fell silent. What is given up here is paid for again.
	cacheTries     = 20
	cacheFirstWait = 50 * time.Millisecond
	cacheLastWait  = time.Second
	BytesFloat     = 4
)

// errVectorBytes: an embedding cache row does not hold what its dimension says.
var errVectorBytes = errors.New("vector bytes do not fit the dimension")

// Entry is one embedding that was paid for.
type Entry struct {
	Hash   TextHash
	Vector []float32
}

// Known returns the dimension of each of hashes that the embedding cache has for the model, and notes their use.
func (a *Cache) Known(ctx context.Context, model string, hashes []TextHash) (map[TextHash]int, error) {
	look := &embeddingRead{model: model, hashes: hashes}
	if err := a.looks.Do(ctx, look)[0]; err != nil {
		return nil, err
	}
	return look.known, nil
}

// Used notes that entries were used, so that the sweep keeps them.
func (a *Cache) Used(ctx context.Context, model string, hashes []TextHash) error {
	if len(hashes) == 0 {
		return nil
	}
	err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		params := append([]any{m.Now}, modelArgs(model, hashes)...)
		_, err := tx.ExecContext(ctx, a.q.List("LedgerTouch", len(hashes)), params...)
		return err
	})
	if err != nil {
		return fmt.Errorf("note the ledger's use: %w", err)
	}
	return nil
}

// Vectors reads the vectors of those of hashes that the embedding cache has.
func (a *Cache) Vectors(ctx context.Context, model string, hashes []TextHash) (map[TextHash][]float32, error) {
	found, err := sqldb.ReadAll(ctx, a.d.Store, "read the ledger", a.q.List("LedgerFind", len(hashes)), modelArgs(model, hashes), func(rows *sql.Rows) (Entry, error) {
		var e Entry
		var dim int
		var blob []byte
		err := rows.Scan(&e.Hash, &dim, &blob)
		if err != nil {
			return e, err
		}
		if e.Vector, err = decodeVector(blob, dim); err != nil {
			err = fmt.Errorf("entry %s: %w", e.Hash, err)
		}
		return e, err
	})
	out := make(map[TextHash][]float32, len(found))
	for _, e := range found {
		out[e.Hash] = e.Vector
	}
	return out, err
}

// Add commits embeddings that were paid for, also when the run is being stopped; entries have different hashes.
// An entry is the same whoever writes it, so a commit without an answer is done again.
func (a *Cache) Add(ctx context.Context, model string, entries []Entry) error {
	wait := pause.Backoff{First: cacheFirstWait, Most: cacheLastWait}
	for try := 1; ; try++ {
		err := a.cacheTry(ctx, model, entries)
		if err == nil {
			return nil
		}
		away := errors.Is(err, taskstate.ErrOutcomeUnknown) || errors.Is(err, taskstate.ErrUnavailable)
		if !away || try == cacheTries || !pause.For(ctx, wait.Next()) {
			return fmt.Errorf("write the ledger: %w", err)
		}
	}
}

// modelArgs are the arguments of a look-up.
func modelArgs(model string, hashes []TextHash) []any {
	out := make([]any, 0, len(hashes)+1)
	out = append(out, model)
	for _, h := range hashes {
		out = append(out, h.String())
	}
	return out
}

// encodeVector is float32, little endian.
func encodeVector(v []float32) []byte {
	out := make([]byte, 0, len(v)*BytesFloat)
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// decodeVector is the reverse of encodeVector. errVectorBytes.
func decodeVector(blob []byte, dim int) ([]float32, error) {
	if len(blob) != dim*BytesFloat {
		return nil, fmt.Errorf("%w: %d bytes, %d dimensions", errVectorBytes, len(blob), dim)
	}
	out := make([]float32, dim)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(blob[i*BytesFloat:]))
	}
	return out, nil
}

// Swept reports whether every entry that nobody used for a day has been removed.
func (a *Cache) Swept(ctx context.Context) (bool, error) {
	m, err := a.d.Store.Moment(ctx)
	if err != nil {
		return false, err
	}
	old, err := sqldb.ReadAll(ctx, a.d.Store, "look for old embeddings", a.q.Get("LedgerOld"), []any{m.Now.Add(-cacheKeep), 1}, func(rows *sql.Rows) (hash string, err error) {
		var model string
		return hash, rows.Scan(&model, &hash)
	})
	return err == nil && len(old) == 0, err
}

// Sweep removes embeddings that nobody used for a day, in so many pages at most. It returns how many it removed.
func (a *Cache) Sweep(ctx context.Context, pages int) (removed int, err error) {
	m, err := a.d.Store.Moment(ctx)
	if err != nil {
		return 0, err
	}
	before := m.Now.Add(-cacheKeep)
	type entry struct{ model, hash string }
	for range pages {
		old, err := sqldb.ReadAll(ctx, a.d.Store, "look for old embeddings", a.q.Get("LedgerOld"), []any{before, sweepPage}, func(rows *sql.Rows) (e entry, err error) {
			err = rows.Scan(&e.model, &e.hash)
			return e, err
		})
		if err != nil {
			return removed, err
		}
		by := map[string][]string{}
		for _, e := range old {
			by[e.model] = append(by[e.model], e.hash)
		}
		for model, hashes := range by {
			err := a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
				_, err := tx.ExecContext(ctx, a.q.List("LedgerDelete", len(hashes)), append([]any{model, before}, sqldb.Args(hashes)...)...)
				return err
			})
			if err != nil {
				return removed, err
			}
		}
		if removed += len(old); len(old) < sweepPage {
			break
		}
	}
	return removed, nil
}

// TextHash is the sha256 of a segment's text: the key of the embedding cache.
type TextHash [sha256.Size]byte

// String is the hash as the tables keep it.
func (h TextHash) String() string { return hex.EncodeToString(h[:]) }

// Scan implements sql.Scanner.
func (h *TextHash) Scan(column any) error {
	text := fmt.Appendf(nil, "%s", column)
	if len(text) == hex.EncodedLen(len(h)) {
		if _, err := hex.Decode(h[:], text); err == nil {
			return nil
		}
	}
	return fmt.Errorf("text hash %q is not 64 hex digits", text)
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
	scan := func(rows *sql.Rows) (e entry, err error) {
		err = rows.Scan(&e.hash, &e.dim, &e.used)
		return e, err
	}
	found, err := sqldb.ReadAll(ctx, a.d.Store, "look into the ledger", a.q.List("LedgerKnown", len(hashes)), modelArgs(model, hashes), scan)
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
