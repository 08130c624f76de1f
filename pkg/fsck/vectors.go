package fsck

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
)

const (
	// presentBatch is how many ids the store is asked for at once, listPage how many it lists.
	presentBatch = 500
	listPage     = 1000
	// keptFindings bounds the strays and missing vectors that are kept for Repair.
	keptFindings = 1_000_000
)

// wanted is a vector that a visible version needs.
type wanted struct {
	d               documentRow
	version, model  string
	id, birth, hash string
	dim             int
}

// want is the part of I25 that asks the store: each id is there, as the row says. Small documents are asked for together.
func (c *checker) want(ctx context.Context, d documentRow, v versionRow, rows []segmentRow) error {
	if c.e.Vectors == nil {
		return nil
	}
	for _, s := range rows {
		c.wants[d.base] = append(c.wants[d.base], wanted{d, v.id, v.model, s.vector, s.birth, s.hash, v.dim})
		if len(c.wants[d.base]) >= presentBatch {
			if err := c.present(ctx, d.base); err != nil {
				return err
			}
		}
	}
	return nil
}

// presentAll asks for what is left in all bases.
func (c *checker) presentAll(ctx context.Context) error {
	for base := range c.wants {
		if err := c.present(ctx, base); err != nil {
			return err
		}
	}
	return nil
}

// present asks the store for the vectors wanted of a base. What misses, belongs to another document or version there, or
// (deep) has other values than were paid for is a violation unless its document has moved on.
func (c *checker) present(ctx context.Context, base string) error {
	all := c.wants[base]
	delete(c.wants, base)
	ids := make([]string, len(all))
	for i, w := range all {
		ids[i] = w.id
	}
	there, err := c.e.Vectors.Get(ctx, base, ids, c.o.Deep)
	if err != nil {
		return fmt.Errorf("vectors of base %s: %w", base, err)
	}
	var paid map[string]map[string][]float32
	if c.o.Deep {
		if paid, err = c.paidFor(ctx, all); err != nil {
			return fmt.Errorf("embedding cache: %w", err)
		}
	}
	c.tally.Judged("I25", int64(len(ids)))
	for _, w := range all {
		row, held := there[w.id]
		problem := ""
		switch known := paid[w.model][w.hash]; {
		case !held:
			problem = "is not in the store"
		case row.DocumentID != w.d.id || row.Birth != w.birth:
			problem = fmt.Sprintf("belongs to document %q and version %q in the store, its row says version %s", row.DocumentID, row.Birth, w.birth)
		case !c.o.Deep:
		case known == nil:
			c.unknown++
		case !alike(row.Values, known):
			problem, held = "has other values in the store than were embedded", false
		}
		if problem == "" {
			continue
		}
		if moved, err := c.moved(ctx, w.d); err != nil {
			return err
		} else if moved {
			continue
		}
		c.bad("I25", w.d.id, "version %s: visible vector %s %s", w.version, w.id, problem)
		if len(c.missing) < keptFindings {
			c.missing = append(c.missing, Missing{Base: base, Document: w.d.id, Version: w.version, ID: w.id, Held: held})
		}
	}
	return nil
}

// paidFor reads what the embedding cache has of the wanted vectors, by model and text hash.
func (c *checker) paidFor(ctx context.Context, all []wanted) (map[string]map[string][]float32, error) {
	type kind struct {
		model string
		dim   int
	}
	hashes := map[kind]map[string]bool{}
	for _, w := range all {
		k := kind{w.model, w.dim}
		if hashes[k] == nil {
			hashes[k] = map[string]bool{}
		}
		hashes[k][w.hash] = true
	}
	out := map[string]map[string][]float32{}
	for k, set := range hashes {
		known, err := c.cached(ctx, k.model, k.dim, set)
		if err != nil {
			return nil, err
		}
		if out[k.model] == nil {
			out[k.model] = map[string][]float32{}
		}
		maps.Copy(out[k.model], known)
	}
	return out, nil
}

// sameDirection is the least cosine of two vectors that count as the same: a store rounds, and a service does not return
// the same vector to the last digit when it is asked twice.
const sameDirection = 0.999

// alike compares directions, which is all that a search looks at.
func alike(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	var dot, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
	}
	return dot >= sameDirection*math.Sqrt(aa*bb) && aa > 0
}

// listVectors looks at the store from its own side: dimension, and no id that SQL does not name.
func (c *checker) listVectors(ctx context.Context) error {
	if c.e.Vectors == nil {
		return nil
	}
	for after := ""; ; {
		n := 0
		type base struct {
			id      string
			dim     int
			deleted bool
		}
		var page []base
		err := c.each(ctx, c.q.Get("Bases"), []any{after, documentPage}, func(scan func(...any) error) error {
			var b base
			var model string
			err := scan(&b.id, &model, &b.dim, &b.deleted)
			page = append(page, b)
			n++
			return err
		})
		if err != nil || n == 0 {
			return err
		}
		for _, b := range page {
			after = b.id
			if b.deleted {
				continue // its collection goes as a whole
			}
			if err := c.dimension(ctx, b.id, b.dim); err != nil {
				return fmt.Errorf("base %s: %w", b.id, err)
			}
			if err := c.listBase(ctx, b.id); err != nil {
				return fmt.Errorf("list base %s: %w", b.id, err)
			}
		}
	}
}

// dimension asks the base's collection for one neighbour of a vector of the base's dimension: a store refuses another one.
func (c *checker) dimension(ctx context.Context, base string, dim int) error {
	if dim == 0 {
		return nil // nothing was embedded yet
	}
	probe := make([]float32, dim)
	probe[0] = 1
	_, err := c.e.Vectors.Query(ctx, base, probe, 1, nil)
	if err != nil && ingest.AsFailure(err).Permanent {
		c.verdict(false, "I25", base, "the base has %d dimensions, its collection refuses such a vector: %v", dim, err)
		return nil
	}
	if err == nil {
		c.judged("I25")
	}
	return err
}

// listBase finds strays: ids of the store that no row and no garbage names. The list is read before the rows: a row is
// committed before its vector is written (design D8), so an id without a row is one only if it is still there in the end.
func (c *checker) listBase(ctx context.Context, base string) error {
	tombs := 0
	if err := c.db.QueryRowContext(ctx, c.q.Get("Tombstones"), base).Scan(&tombs); err != nil {
		return err
	}
	for offset := 0; ; {
		page, err := c.e.Vectors.List(ctx, base, offset, listPage)
		if err != nil {
			return err
		}
		seen := make(map[string]bool, len(page))
		for _, id := range page {
			if seen[id] {
				c.bad("I25", base, "the store lists vector %s twice", id)
			}
			seen[id] = true
		}
		if err := c.judgeListed(ctx, base, page, tombs > 0); err != nil {
			return err
		}
		if offset += len(page); len(page) < listPage {
			return nil
		}
	}
}

// judgeListed judges one page of a listing. With a tombstone in the base an unnamed id may be the deleted document's: the
// sweep, not this rule, answers for it.
func (c *checker) judgeListed(ctx context.Context, base string, page []string, tombs bool) error {
	for len(page) > 0 {
		part := page[:min(len(page), presentBatch)]
		page = page[len(part):]
		unnamed, err := c.unnamedVectors(ctx, part)
		if err != nil {
			return err
		}
		c.tally.Judged("I25", int64(len(part)))
		if len(unnamed) == 0 {
			continue
		}
		there, err := c.e.Vectors.Get(ctx, base, unnamed, false)
		if err != nil {
			return err
		}
		for _, id := range unnamed {
			if _, held := there[id]; !held || tombs {
				continue
			}
			c.bad("I25", base, "the store holds vector %s, which no row names", id)
			if len(c.strays) < keptFindings {
				c.strays = append(c.strays, Stray{Base: base, ID: id})
			}
		}
	}
	return nil
}

// unnamedVectors are those of ids that neither a row nor the garbage names.
func (c *checker) unnamedVectors(ctx context.Context, ids []string) ([]string, error) {
	return c.unnamedBy(ctx, []string{"VectorsOfRows", "VectorsOfGarbage"}, ids)
}

// unnamedBy are those of ids that none of the queries finds.
func (c *checker) unnamedBy(ctx context.Context, queries, ids []string) ([]string, error) {
	named := map[string]bool{}
	for _, query := range queries {
		err := c.each(ctx, c.q.List(query, len(ids)), sqldb.Args(ids), func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			named[strings.TrimSpace(id)] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var out []string
	for _, id := range ids {
		if !named[id] {
			out = append(out, id)
		}
	}
	return out, nil
}
