package fsck

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// presentBatch is how many ids the store is asked for at once, listPage how many it lists.
	presentBatch = 500
	listPage     = 1000
)

// embedding is what a vector's values depend on besides the text.
type embedding struct {
	model string
	dim   int
}

// wanted is a vector that a visible version needs.
type wanted struct {
	embedding
	d                        documentRow
	version, id, birth, hash string
}

// want is the part of I25 that asks the store: each id is there, as the row says. Small documents are asked for together.
func (c *checker) want(ctx context.Context, d documentRow, v versionRow, rows []segmentRow) error {
	if c.e.Vectors == nil {
		return nil
	}
	for _, s := range rows {
		c.wants[v.collection] = append(c.wants[v.collection], wanted{embedding{v.model, v.dim}, d, v.id, s.vector, s.birth, s.hash})
		if len(c.wants[v.collection]) >= presentBatch {
			if err := c.present(ctx, v.collection); err != nil {
				return err
			}
		}
	}
	return nil
}

// presentAll asks for what is left in all collections.
func (c *checker) presentAll(ctx context.Context) error {
	for collection := range c.wants {
		if err := c.present(ctx, collection); err != nil {
			return err
		}
	}
	return nil
}

// present asks the store for the vectors wanted of a collection. What misses, belongs to another document or version there, or
// (deep) has other values than were paid for is a violation unless its document has moved on.
func (c *checker) present(ctx context.Context, collection string) error {
	all := c.wants[collection]
	delete(c.wants, collection)
	ids, hashes := make([]string, len(all)), map[embedding][]string{}
	for i, w := range all {
		ids[i] = w.id
		hashes[w.embedding] = append(hashes[w.embedding], w.hash)
	}
	there, err := c.e.Vectors.Get(ctx, collection, ids, c.o.Deep)
	if err != nil {
		return fmt.Errorf("vectors of collection %s: %w", collection, err)
	}
	paid := map[embedding]map[string][]float32{} // by text hash
	if c.o.Deep {
		for e, some := range hashes {
			if paid[e], err = c.cached(ctx, e, some); err != nil {
				return fmt.Errorf("embedding cache: %w", err)
			}
		}
	}
	c.tally.Judged("I25", int64(len(ids)))
	for _, w := range all {
		row, held := there[w.id]
		problem := ""
		switch known := paid[w.embedding][w.hash]; {
		case !held:
			problem = "is not in the store"
		case row.DocumentID != w.d.id || row.Birth != w.birth:
			problem = fmt.Sprintf("belongs to document %q and version %q in the store, its row says version %s", row.DocumentID, row.Birth, w.birth)
		case !c.o.Deep:
		case known == nil:
			c.Uncompared++
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
		keep(&c.Missing, Missing{Base: w.d.base, Document: w.d.id, Version: w.version, ID: w.id, Held: held})
	}
	return nil
}

// cached reads what was paid for: the vectors of those of hashes that the embedding cache has.
func (c *checker) cached(ctx context.Context, e embedding, hashes []string) (map[string][]float32, error) {
	out := map[string][]float32{}
	return out, c.each(ctx, func(rows *sql.Rows) error {
		var hash string
		var n int
		var blob []byte
		if err := rows.Scan(&hash, &n, &blob); err != nil {
			return err
		}
		if n != e.dim || len(blob) != 4*n {
			return nil // of other dimensions: not this version's
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(blob[4*i:]))
		}
		out[hash] = values
		return nil
	}, c.q.List("LedgerFind", len(hashes)), slices.Insert(sqldb.Args(hashes), 0, any(e.model))...)
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

// baseRow is a knowledge base.
type baseRow struct {
	id         string
	dim        int
	collection string
	deleted    bool
}

// scanBase reads the columns of Bases.
func scanBase(rows *sql.Rows) (b baseRow, err error) {
	err = rows.Scan(&b.id, &b.dim, &b.collection, &b.deleted)
	b.collection = strings.TrimSpace(b.collection)
	return b, err
}

// listVectors looks at the store from its own side: dimension, and no id that SQL does not name.
func (c *checker) listVectors(ctx context.Context) error {
	if c.e.Vectors == nil {
		return nil
	}
	return pages(ctx, c, "Bases", scanBase, func(b baseRow) string { return b.id }, func(ctx context.Context, page []baseRow) error {
		for _, b := range page {
			if b.deleted {
				continue // its collection goes as a whole
			}
			if err := c.dimension(ctx, b); err != nil {
				return fmt.Errorf("base %s: %w", b.id, err)
			}
			if err := c.listBase(ctx, b); err != nil {
				return fmt.Errorf("list base %s: %w", b.id, err)
			}
		}
		return nil
	})
}

// dimension asks the base's collection for one neighbour of a vector of the base's dimension: a store refuses another one.
func (c *checker) dimension(ctx context.Context, b baseRow) error {
	if b.dim == 0 {
		return nil // nothing was embedded yet
	}
	probe := make([]float32, b.dim)
	probe[0] = 1
	_, err := c.e.Vectors.Query(ctx, b.collection, probe, 1, nil)
	if err != nil && !ingest.AsFailure(err).Permanent {
		return err
	}
	c.verdict(err == nil, "I25", b.id, "the base has %d dimensions, its collection refuses such a vector: %v", b.dim, err)
	return nil
}

// listBase finds strays: ids of the store that no row and no garbage names. The list is read before the rows: a row is
// committed before its vector is written (design D8), so an id without a row is one only if it is still there in the end.
func (c *checker) listBase(ctx context.Context, b baseRow) error {
	tombs, err := c.count(ctx, "Tombstones", b.id)
	if err != nil {
		return err
	}
	for offset := 0; ; {
		page, err := c.e.Vectors.List(ctx, b.collection, offset, listPage)
		if err != nil {
			return err
		}
		seen := make(map[string]bool, len(page))
		for _, id := range page {
			if seen[id] {
				c.bad("I25", b.id, "the store lists vector %s twice", id)
			}
			seen[id] = true
		}
		for part := range slices.Chunk(page, presentBatch) {
			if err := c.judgeListed(ctx, b, part, tombs > 0); err != nil {
				return err
			}
		}
		if offset += len(page); len(page) < listPage {
			return nil
		}
	}
}

// judgeListed judges a part of a listing. With a tombstone in the base an unnamed id may be the deleted document's: the
// sweep, not this rule, answers for it.
func (c *checker) judgeListed(ctx context.Context, b baseRow, part []string, tombs bool) error {
	unnamed, err := c.unnamedVectors(ctx, part)
	if err != nil {
		return err
	}
	c.tally.Judged("I25", int64(len(part)))
	if len(unnamed) == 0 || tombs {
		return nil
	}
	there, err := c.e.Vectors.Get(ctx, b.collection, unnamed, false)
	for _, id := range slices.Sorted(maps.Keys(there)) {
		c.bad("I25", b.id, "the store holds vector %s, which no row names", id)
		keep(&c.Strays, Stray{Collection: b.collection, ID: id})
	}
	return err
}

// unnamedVectors are those of ids that neither a row nor the garbage names.
func (c *checker) unnamedVectors(ctx context.Context, ids []string) ([]string, error) {
	return c.unnamedBy(ctx, []string{"VectorsOfRows", "VectorsOfGarbage"}, ids)
}

// unnamedBy are those of ids that none of the queries finds.
func (c *checker) unnamedBy(ctx context.Context, queries, ids []string) ([]string, error) {
	left := slices.Clone(ids)
	for _, query := range queries {
		found, err := sqldb.Collect(ctx, c.db, sqldb.Column[string], c.q.List(query, len(ids)), sqldb.Args(ids)...)
		if err != nil {
			return nil, err
		}
		named := map[string]bool{}
		for _, id := range found {
			named[strings.TrimSpace(id)] = true
		}
		left = slices.DeleteFunc(left, func(id string) bool { return named[id] })
	}
	return left, nil
}

// indexDB is the database as the full-text index needs it.
type indexDB struct{ DB }

// Read implements textindex.Database.
func (d indexDB) Read(ctx context.Context, f taskstate.ReadFunc) error { return f(ctx, d.Reader()) }

// InTx implements textindex.Database; only a repair writes.
func (d indexDB) InTx(ctx context.Context, f taskstate.TxFunc) error {
	w, ok := d.DB.(Writer)
	if !ok {
		return errors.ErrUnsupported
	}
	return w.InTx(ctx, f)
}

// judgeIndex is I37. What the index has beyond a version's rows, as a run leaves that was begun again with another splitter, is no
// damage: a search compares the row's hash, and finds none of it.
func (c *checker) judgeIndex(ctx context.Context) error {
	judged, err := textindex.New(indexDB{c.e.DB}).Check(ctx, "", func(g textindex.Gap) error {
		switch {
		case g.Part != "":
			c.bad("I37", g.Base, "part %s of its full-text index is damaged", g.Part)
		case len(g.Missing) > 0:
			c.bad("I37", g.Document, "version %s: the full-text index lacks %d of its segments", g.Version, len(g.Missing))
		default:
			return nil
		}
		if n := len(c.Unindexed); n == 0 || c.Unindexed[n-1].Base != g.Base {
			keep(&c.Unindexed, Unindexed{Base: g.Base})
		}
		c.Unindexed[len(c.Unindexed)-1].Flaws++
		return nil
	})
	c.tally.Judged("I37", int64(judged))
	return err
}
