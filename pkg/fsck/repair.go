package fsck

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
)

// repairBatch is how many vectors are mended at once.
const repairBatch = 200

// Repaired is what a Repair did.
type Repaired struct {
	Deleted int // strays taken out of the store
	Written int // missing vectors written again, Paid of them embedded anew
	Paid    int
	Rows    int   // documents whose rows were mended, or the rows of their files made again
	Mended  int64 // violations that those rows were
	Files   int   // files without a row that were removed
	// Left are what could not be mended, with the reason: upload those documents again with force.
	Left []string
}

// Repair puts right what Check found. In the vector store, strays that no row names even now are deleted, and missing or
// changed vectors of visible versions are written again from the embedding cache, or embedded anew when the embedder is the
// version's model. Of the rows, those are mended that all other witnesses speak against (repair_rows.go). Files without a row that
// are older than a day are removed. Nothing else is touched: a lost file or text cannot be made again. embedder may be nil.
func Repair(ctx context.Context, e Evidence, embedder ingest.Embedder, f Findings) (Repaired, error) {
	r := &repair{
		checker: checker{e: e, q: sqldb.MustLoad(queryFiles, "queries", e.DB.Dialect()), db: e.DB.Reader()}, embedder: embedder,
		held: map[string]bool{},
	}
	for _, l := range f.Lost {
		r.leave(l.Document, l.Reason)
	}
	if err := r.mendRows(ctx, f.Suspects); err != nil {
		return r.done, fmt.Errorf("mend rows: %w", err)
	}
	if err := r.deleteStrays(ctx, f.Strays); err != nil {
		return r.done, fmt.Errorf("delete strays: %w", err)
	}
	if err := r.writeMissing(ctx, f.Missing); err != nil {
		return r.done, fmt.Errorf("write missing vectors: %w", err)
	}
	if err := r.removeOrphans(ctx, f.Orphans); err != nil {
		return r.done, fmt.Errorf("remove files without a row: %w", err)
	}
	return r.done, nil
}

// repair is one Repair in work.
type repair struct {
	checker
	embedder ingest.Embedder
	held     map[string]bool // by vector: the store has its values
	done     Repaired
}

// deleteStrays deletes base by base; the rows are asked once more right before.
func (r *repair) deleteStrays(ctx context.Context, strays []Stray) error {
	byBase := map[string][]string{}
	for _, s := range strays {
		byBase[s.Base] = append(byBase[s.Base], s.ID)
	}
	for base, ids := range byBase {
		for part := range slices.Chunk(ids, repairBatch) {
			unnamed, err := r.unnamedVectors(ctx, part)
			if err != nil {
				return err
			}
			if len(unnamed) == 0 {
				continue
			}
			if err := r.e.Vectors.Delete(ctx, base, unnamed); err != nil {
				return err
			}
			r.done.Deleted += len(unnamed)
		}
	}
	return nil
}

// place is where missing vectors belong.
type place struct{ base, document, version string }

// writeMissing writes version by version.
func (r *repair) writeMissing(ctx context.Context, missing []Missing) error {
	byPlace := map[place][]string{}
	for _, m := range missing {
		r.held[m.ID] = m.Held
		at := place{m.Base, m.Document, m.Version}
		byPlace[at] = append(byPlace[at], m.ID)
	}
	for at, ids := range byPlace {
		versions, err := r.versionsOf(ctx, []string{at.document})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(versions[at.document], func(v versionRow) bool { return v.id == at.version && v.state == visible })
		if i < 0 {
			continue // it is not visible any more
		}
		v := versions[at.document][i]
		for part := range slices.Chunk(ids, repairBatch) {
			if err := r.write(ctx, at, v, part); err != nil {
				return fmt.Errorf("version %s: %w", v.id, err)
			}
		}
	}
	return nil
}

// piece is a segment whose vector is missing.
type piece struct{ vector, hash, birth, text string }

// write mends one batch of one version.
func (r *repair) write(ctx context.Context, at place, v versionRow, ids []string) error {
	var pieces []piece
	hashes := map[string]bool{}
	err := r.each(ctx, r.q.List("SegmentTexts", len(ids)), append([]any{v.id}, sqldb.Args(ids)...), func(scan func(...any) error) error {
		var p piece
		err := scan(&p.vector, &p.hash, &p.birth, &p.text)
		pieces = append(pieces, p)
		hashes[p.hash] = true
		return err
	})
	if err != nil || len(pieces) == 0 {
		return err
	}
	vectors, err := r.cached(ctx, v.model, v.dim, hashes)
	if err != nil {
		return err
	}
	if err := r.takeHeld(ctx, at, pieces, vectors); err != nil {
		return err
	}
	left, err := r.pay(ctx, v, pieces, vectors)
	if err != nil {
		return err
	}
	if left != "" {
		r.leave(at.document, left)
		return nil
	}
	rows := make([]ingest.Vector, len(pieces))
	for i, p := range pieces {
		rows[i] = ingest.Vector{ID: p.vector, DocumentID: at.document, Birth: p.birth, Values: vectors[p.hash]}
	}
	if err := r.e.Vectors.Upsert(ctx, at.base, rows); err != nil {
		return err
	}
	r.done.Written += len(rows)
	return nil
}

// cached reads what was paid for: the vectors of those of hashes that the embedding cache has for the model.
func (c *checker) cached(ctx context.Context, model string, dim int, hashes map[string]bool) (map[string][]float32, error) {
	args := []any{model}
	for h := range hashes {
		args = append(args, h)
	}
	out := map[string][]float32{}
	err := c.each(ctx, c.q.List("LedgerFind", len(hashes)), args, func(scan func(...any) error) error {
		var hash string
		var n int
		var blob []byte
		if err := scan(&hash, &n, &blob); err != nil {
			return err
		}
		if n != dim || len(blob) != 4*n {
			return nil // of other dimensions: not this version's
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(blob[4*i:]))
		}
		out[hash] = values
		return nil
	})
	return out, err
}

// takeHeld adds the values of vectors whose metadata alone is wrong, where the cache does not have them.
func (r *repair) takeHeld(ctx context.Context, at place, pieces []piece, vectors map[string][]float32) error {
	ids := map[string]string{} // hash by vector
	for _, p := range pieces {
		if vectors[p.hash] == nil && r.held[p.vector] {
			ids[p.vector] = p.hash
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := r.e.Vectors.Get(ctx, at.base, slices.Collect(maps.Keys(ids)), true)
	for id, row := range rows {
		vectors[ids[id]] = row.Values
	}
	return err
}

// pay embeds what the embedding cache does not have into vectors, or says why it cannot.
func (r *repair) pay(ctx context.Context, v versionRow, pieces []piece, vectors map[string][]float32) (left string, err error) {
	var missing []piece
	for _, p := range pieces {
		if vectors[p.hash] == nil {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	if r.embedder == nil || r.embedder.Model().Key != v.model {
		return fmt.Sprintf("%d vectors were made by %q, which is not the configured model; upload it again with force", len(missing), v.model), nil
	}
	for part := range slices.Chunk(missing, max(1, r.embedder.BatchSize())) {
		texts := make([]string, len(part))
		for i, p := range part {
			texts[i] = p.text
		}
		got, err := r.embedder.Embed(ctx, texts)
		if err != nil {
			return "", fmt.Errorf("embed: %w", err)
		}
		for i, p := range part {
			vectors[p.hash] = got[i]
		}
		r.done.Paid += len(part)
	}
	return "", nil
}
