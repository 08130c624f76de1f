package fsck

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqlfile"
)

// repairBatch is how many vectors are mended at once.
const repairBatch = 200

// Repaired is what a Repair did.
type Repaired struct {
	Deleted int // strays taken out of the store
	Written int // missing vectors written again, Paid of them embedded anew
	Paid    int
	// Left are what could not be mended, with the reason: upload those documents again with force.
	Left []string
}

// Repair puts right in the vector store what Check found: strays that no row names even now are deleted, missing vectors
// of visible versions are written again from the ledger, or embedded anew when the embedder is the version's model.
// Nothing else is touched: rows are the truth, and a lost file cannot be made again. embedder may be nil.
func Repair(ctx context.Context, e Evidence, embedder ingest.Embedder, f Findings) (Repaired, error) {
	r := &repair{
		checker: checker{e: e, q: sqlfile.MustLoad(queryFiles(), sqlfile.MySQL), db: e.DB.Reader()}, embedder: embedder,
	}
	if err := r.deleteStrays(ctx, f.Strays); err != nil {
		return r.done, fmt.Errorf("delete strays: %w", err)
	}
	if err := r.writeMissing(ctx, f.Missing); err != nil {
		return r.done, fmt.Errorf("write missing vectors: %w", err)
	}
	return r.done, nil
}

// repair is one Repair in work.
type repair struct {
	checker
	embedder ingest.Embedder
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
			unnamed, err := r.unnamed(ctx, part)
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
	err := r.each(ctx, r.q.List("SegmentTexts", len(ids)), append([]any{v.id}, anys(ids)...), func(scan func(...any) error) error {
		var p piece
		err := scan(&p.vector, &p.hash, &p.birth, &p.text)
		pieces = append(pieces, p)
		hashes[p.hash] = true
		return err
	})
	if err != nil || len(pieces) == 0 {
		return err
	}
	vectors, err := r.ledger(ctx, v, hashes)
	if err != nil {
		return err
	}
	left, err := r.pay(ctx, v, pieces, vectors)
	if err != nil {
		return err
	}
	if left != "" {
		r.done.Left = append(r.done.Left, fmt.Sprintf("document %s: %s", at.document, left))
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

// ledger reads what was paid for.
func (r *repair) ledger(ctx context.Context, v versionRow, hashes map[string]bool) (map[string][]float32, error) {
	args := []any{v.model}
	for h := range hashes {
		args = append(args, h)
	}
	out := map[string][]float32{}
	err := r.each(ctx, r.q.List("LedgerFind", len(hashes)), args, func(scan func(...any) error) error {
		var hash string
		var dim int
		var blob []byte
		if err := scan(&hash, &dim, &blob); err != nil {
			return err
		}
		if dim != v.dim || len(blob) != 4*dim {
			return nil // of other dimensions: embedded anew
		}
		values := make([]float32, dim)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(blob[4*i:]))
		}
		out[hash] = values
		return nil
	})
	return out, err
}

// pay embeds what the ledger does not have into vectors, or says why it cannot.
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
