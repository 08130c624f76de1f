package ingest

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	cacheLookup = 500            // hashes of one look-up
	cachePage   = 200            // entries of one statement: 2.4 MB at 3,072 dimensions, below every server's limit
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
	bytesFloat     = 4
)

// errVectorBytes: an embedding cache row does not hold what its dimension says.
var errVectorBytes = errors.New("vector bytes do not fit the dimension")

// embeddingEntry is one embedding that was paid for.
type embeddingEntry struct {
	hash   textHash
	vector []float32
}

// cacheKnown returns the dimension of each of hashes that the embedding cache has for the model, and notes their use.
func (a *App) cacheKnown(ctx context.Context, model string, hashes []textHash) (map[textHash]int, error) {
	look := &embeddingRead{model: model, hashes: hashes}
	if err := a.looks.Do(ctx, look)[0]; err != nil {
		return nil, err
	}
	return look.known, nil
}

// cacheUsed notes that entries were used, so that the sweep keeps them.
func (a *App) cacheUsed(ctx context.Context, model string, hashes []textHash) error {
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

// cacheVectors reads the vectors of those of hashes that the embedding cache has.
func (a *App) cacheVectors(ctx context.Context, model string, hashes []textHash) (map[textHash][]float32, error) {
	found, err := collect(ctx, a.d.Store, "read the ledger", a.q.List("LedgerFind", len(hashes)), modelArgs(model, hashes), func(rows *sql.Rows) (embeddingEntry, error) {
		var e embeddingEntry
		var text string
		var dim int
		var blob []byte
		if err := rows.Scan(&text, &dim, &blob); err != nil {
			return e, err
		}
		var err error
		if e.hash, err = parseHash(text); err != nil {
			return e, err
		}
		if e.vector, err = decodeVector(blob, dim); err != nil {
			err = fmt.Errorf("entry %s: %w", text, err)
		}
		return e, err
	})
	out := make(map[textHash][]float32, len(found))
	for _, e := range found {
		out[e.hash] = e.vector
	}
	return out, err
}

// cacheAdd commits embeddings that were paid for, also when the run is being stopped; entries have different hashes.
// An entry is the same whoever writes it, so a commit without an answer is done again.
func (a *App) cacheAdd(ctx context.Context, model string, entries []embeddingEntry) error {
	wait := cacheFirstWait
	for try := 1; ; try++ {
		err := a.cacheTry(ctx, model, entries)
		if err == nil {
			return nil
		}
		away := errors.Is(err, taskstate.ErrOutcomeUnknown) || errors.Is(err, taskstate.ErrUnavailable)
		if !away || try == cacheTries || !pauseFor(ctx, wait) {
			return fmt.Errorf("write the ledger: %w", err)
		}
		wait = min(2*wait, cacheLastWait)
	}
}

// pauseFor waits; false when ctx ended first.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}

// modelArgs are the arguments of a look-up.
func modelArgs(model string, hashes []textHash) []any {
	out := make([]any, 0, len(hashes)+1)
	out = append(out, model)
	for _, h := range hashes {
		out = append(out, h.String())
	}
	return out
}

// encodeVector is float32, little endian.
func encodeVector(v []float32) []byte {
	out := make([]byte, 0, len(v)*bytesFloat)
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// decodeVector is the reverse of encodeVector. errVectorBytes.
func decodeVector(blob []byte, dim int) ([]float32, error) {
	if len(blob) != dim*bytesFloat {
		return nil, fmt.Errorf("%w: %d bytes, %d dimensions", errVectorBytes, len(blob), dim)
	}
	out := make([]float32, dim)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(blob[i*bytesFloat:]))
	}
	return out, nil
}
