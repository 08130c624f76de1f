package embedded

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

func randomValues(r *rand.Rand, dim int) []float32 {
	values := make([]float32, dim)
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	return values
}

// The table against a map: any sequence of upserts and deletes, over the edges of blocks, gives the same rows and
// the same order of hits as sorting them all.
func TestTableAgainstModel(t *testing.T) {
	t.Parallel()
	const dim = 9
	r := rand.New(rand.NewPCG(3, 4))
	table, model := newTable(dim), map[string]ingest.Vector{}
	for step := range 30_000 {
		id := fmt.Sprintf("id%d", r.IntN(3000))
		// Waves of growing and shrinking cross the blocks' edges in both directions.
		if r.IntN(100) < 30+40*(step/5000%2) {
			table.remove(id)
			delete(model, id)
		} else {
			row := ingest.Vector{ID: id, DocumentID: "d", Birth: fmt.Sprintf("v%d", r.IntN(3)), Values: randomValues(r, dim)}
			table.upsert(row.ID, row.DocumentID, row.Birth, row.Values)
			model[id] = row
		}
		if step%1500 == 0 {
			requireSame(t, table, model, randomValues(r, dim))
		}
	}
	for id := range model {
		table.remove(id)
	}
	require.Empty(t, table.rows)
	require.Empty(t, table.search(randomValues(r, dim), 5, nil))
	require.LessOrEqual(t, len(table.blocks), 1)
}

func unitOf(values []float32) []float32 {
	unit := make([]float32, len(values))
	vector.UnitInto(unit, values)
	return unit
}

func requireSame(t *testing.T, table *table, model map[string]ingest.Vector, query []float32) {
	t.Helper()
	require.Len(t, table.rows, len(model))
	unit := unitOf(query)
	require.InDelta(t, 1, dot(unit, unit), 1e-5)
	for _, births := range []map[string]bool{nil, {"v1": true, "v2": true}} {
		var want []ingest.Hit
		for id, row := range model {
			if births == nil || births[row.Birth] {
				want = append(want, ingest.Hit{ID: id, Score: float64(dot(unit, unitOf(row.Values)))})
			}
		}
		slices.SortFunc(want, func(a, b ingest.Hit) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
		})
		require.Equal(t, want[:min(50, len(want))], append([]ingest.Hit(nil), table.search(query, 50, births)...))
	}
}

func TestParallelScanFindsTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	table := newTable(8)
	for n := range 3 * parallelRows {
		table.upsert(fmt.Sprintf("id%05d", n), "d", "v", randomValues(r, 8))
	}
	query := randomValues(r, 8)
	top := topK{k: 20}
	table.scan(&top, unitOf(query), 0, len(table.rows), nil)
	require.Equal(t, top.hits, table.search(query, 20, nil))
	require.GreaterOrEqual(t, runtime.GOMAXPROCS(0), 1)
}

// Equal scores are in the order of their ids, also when each part of a parallel scan has some, and when fewer are asked for.
func TestEqualScoresAreInTheOrderOfTheirIDs(t *testing.T) {
	t.Parallel()
	table := newTable(2)
	var ids []string
	for n := range 2*parallelRows + 7 {
		ids = append(ids, fmt.Sprintf("id%06d", n))
	}
	for _, i := range rand.New(rand.NewPCG(7, 8)).Perm(len(ids)) {
		table.upsert(ids[i], "d", "v", []float32{0, 2})
	}
	for _, k := range []int{1, 30} {
		var got []string
		for _, hit := range table.search([]float32{0, 3}, k, nil) {
			require.InDelta(t, 1, hit.Score, 1e-6)
			got = append(got, hit.ID)
		}
		require.ElementsMatch(t, ids[:k], got)
		require.True(t, slices.IsSorted(got))
	}
}

func TestDotOfOddLengths(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 9))
	for n := range 40 {
		a, b := randomValues(r, n), randomValues(r, n)
		var want float64
		for i := range a {
			want += float64(a[i]) * float64(b[i])
		}
		require.InDelta(t, want, dot(a, b), 1e-4)
	}
}

// What the package says about memory: the values and at most 250 bytes a row.
// It is not parallel: the heap is the whole process's.
func TestMemoryPerRow(t *testing.T) {
	const rows, dim = 20_000, 32
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := newTable(dim)
	r := rand.New(rand.NewPCG(1, 2))
	for n := range rows {
		table.upsert(fmt.Sprintf("%064d", n), fmt.Sprintf("document %d", n/50), fmt.Sprintf("version %d", n/50), randomValues(r, dim))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perRow := float64(after.HeapAlloc-before.HeapAlloc)/rows - 4*dim
	t.Logf("%.0f bytes a row beside its values", perRow)
	require.Less(t, perRow, float64(rowOverhead))
	runtime.KeepAlive(table)
}
