package embedded

import (
	"runtime"
	"slices"
	"sync"
	"unique"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

const (
	// blockRows is the most rows that share one allocation of values: growing never copies more than one block.
	blockRows = 1024
	// parallelRows is from how many rows on a scan is worth a second core.
	parallelRows = 8192
)

// table holds the live rows of one base in memory. Its values have length 1, so that a dot product is the cosine.
// It is not safe for concurrent use; the collection locks it.
type table struct {
	dim    int
	rows   []tableRow
	blocks [][]float32 // blockRows*dim values each, the last one less
	at     map[string]int
	sorted []string // ids in order for list; nil: stale
}

type tableRow struct {
	id              string
	document, birth unique.Handle[string] // many rows share one
}

func newTable(dim int) *table {
	return &table{dim: dim, at: map[string]int{}}
}

// rowBytes is what one row of a dimension costs in memory.
func rowBytes(dim int) int64 { return int64(dim)*4 + rowOverhead }

func (t *table) bytes() int64 {
	return int64(len(t.blocks))*blockRows*int64(t.dim)*4 + int64(len(t.rows))*rowOverhead
}

func (t *table) values(i int) []float32 {
	start := i % blockRows * t.dim
	return t.blocks[i/blockRows][start : start+t.dim : start+t.dim]
}

func (t *table) upsert(id, document, birth string, values []float32) {
	i, known := t.at[id]
	if !known {
		i = len(t.rows)
		t.grow(i)
		t.rows = append(t.rows, tableRow{})
		t.at[id] = i
		t.sorted = nil
	} else {
		id = t.rows[i].id
	}
	vector.UnitInto(t.values(i), values)
	t.rows[i] = tableRow{id: id, document: unique.Make(document), birth: unique.Make(birth)}
}

// grow makes place for row i behind the last one. A block begins small: many bases hold few rows.
func (t *table) grow(i int) {
	block := i / blockRows
	if block == len(t.blocks) {
		t.blocks = append(t.blocks, nil)
	}
	need := (i%blockRows + 1) * t.dim
	if have := t.blocks[block]; need > cap(have) {
		bigger := make([]float32, len(have), min(blockRows*t.dim, max(need, 2*cap(have))))
		copy(bigger, have)
		t.blocks[block] = bigger
	}
	t.blocks[block] = t.blocks[block][:need]
}

// remove puts the last row into the place of the removed one: no holes, no order.
func (t *table) remove(id string) {
	i, known := t.at[id]
	if !known {
		return
	}
	last := len(t.rows) - 1
	if i != last {
		copy(t.values(i), t.values(last))
		t.rows[i] = t.rows[last]
		t.at[t.rows[i].id] = i
	}
	t.rows[last] = tableRow{}
	t.rows = t.rows[:last]
	delete(t.at, id)
	t.sorted = nil
	t.shrink(last)
}

// shrink frees what n rows do not need, but for one block: rows that go often come again.
func (t *table) shrink(n int) {
	blocks := (n + blockRows - 1) / blockRows
	if blocks < len(t.blocks) {
		t.blocks[blocks] = t.blocks[blocks][:0]
	} else if n > 0 {
		t.blocks[blocks-1] = t.blocks[blocks-1][:((n-1)%blockRows+1)*t.dim]
	}
	if blocks+1 < len(t.blocks) {
		t.blocks = slices.Delete(t.blocks, blocks+1, len(t.blocks))
	}
}

// vector is row i with its values at length 1; they are the table's own.
func (t *table) vector(i int) ingest.Vector {
	row := t.rows[i]
	return ingest.Vector{ID: row.id, DocumentID: row.document.Value(), Birth: row.birth.Value(), Values: t.values(i)}
}

// search finds the k rows with the largest cosine; births nil: of all.
func (t *table) search(query []float32, k int, births map[string]bool) []ingest.Hit {
	unit := make([]float32, len(query))
	vector.UnitInto(unit, query)
	workers := min(runtime.GOMAXPROCS(0), len(t.rows)/parallelRows+1)
	share := (len(t.rows) + workers - 1) / workers
	tops := make([]topK, workers)
	var group sync.WaitGroup
	for w := range workers {
		tops[w].k = k
		start, end := w*share, min((w+1)*share, len(t.rows))
		if w == workers-1 {
			t.scan(&tops[w], unit, start, end, births)
			continue
		}
		group.Go(func() { t.scan(&tops[w], unit, start, end, births) })
	}
	group.Wait()
	var hits []ingest.Hit
	for _, top := range tops {
		hits = append(hits, top.hits...)
	}
	slices.SortFunc(hits, vector.CompareHits)
	return hits[:min(k, len(hits))]
}

func (t *table) scan(top *topK, unit []float32, start, end int, births map[string]bool) {
	for i := start; i < end; i++ {
		if births != nil && !births[t.rows[i].birth.Value()] {
			continue
		}
		top.offer(t.rows[i].id, float64(dot(unit, t.values(i))))
	}
}

// dot has eight sums of its own: the processor need not wait for one addition before it begins the next.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	b = b[:len(a)]
	for len(a) >= 8 && len(b) >= 8 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		s4 += a[4] * b[4]
		s5 += a[5] * b[5]
		s6 += a[6] * b[6]
		s7 += a[7] * b[7]
		a, b = a[8:], b[8:]
	}
	for i := range a {
		s0 += a[i] * b[i]
	}
	return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
}

// topK keeps the k best hits, the best first.
type topK struct {
	k    int
	hits []ingest.Hit
}

func (t *topK) offer(id string, score float64) {
	hit := ingest.Hit{ID: id, Score: min(1, max(-1, score))}
	if len(t.hits) == t.k && vector.CompareHits(hit, t.hits[t.k-1]) >= 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(t.hits, hit, vector.CompareHits)
	t.hits = slices.Insert(t.hits, at, hit)
	t.hits = t.hits[:min(len(t.hits), t.k)]
}

// list is a page of ids in ascending order.
func (t *table) list(offset, limit int) []string {
	if t.sorted == nil {
		t.sorted = make([]string, len(t.rows))
		for i, row := range t.rows {
			t.sorted[i] = row.id
		}
		slices.Sort(t.sorted)
	}
	if offset < 0 || limit <= 0 || offset >= len(t.sorted) {
		return nil
	}
	return slices.Clone(t.sorted[offset:min(len(t.sorted), offset+limit)])
}
