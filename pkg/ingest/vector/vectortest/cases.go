package vectortest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func testPing(t *testing.T, o Opened) { require.NoError(t, o.Store.Ping(t.Context())) }

func testMissing(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	hits := query(t, o.Store, base, []float32{1, 0}, 5)
	require.Empty(t, hits)
	require.NoError(t, o.Store.Delete(ctx, base, []string{ID(1)}))
	present, err := o.Store.Get(ctx, base, []string{ID(1)}, false)
	require.NoError(t, err)
	require.Empty(t, present)
	require.Empty(t, allIDs(t, o.Store, base))
	require.NoError(t, o.Store.Drop(ctx, base))
	require.NoError(t, o.Store.Upsert(ctx, base, nil))
}

func testIdempotent(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	rows := RandomRows(0, 20, 8, "v1")
	for range 3 {
		require.NoError(t, o.Store.Upsert(ctx, base, rows))
	}
	want := idsOf(rows)
	slices.Sort(want)
	require.Equal(t, want, allIDs(t, o.Store, base))
}

func testLastWins(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	require.NoError(t, o.Store.Upsert(ctx, base, []ingest.Vector{Row(1, "v1", 1, 0, 0), Row(2, "v1", 0, 1, 0), Row(1, "v2", 0, 0, 1)}))
	hits := query(t, o.Store, base, []float32{0, 0, 1}, 1)
	require.Equal(t, []string{ID(1)}, hitIDs(hits))
	require.InDelta(t, 1, hits[0].Score, scoreSlack)

	require.NoError(t, o.Store.Upsert(ctx, base, []ingest.Vector{Row(1, "v3", 1, 0, 0)}))
	hits = query(t, o.Store, base, []float32{1, 0, 0}, 10, "v3")
	require.Equal(t, []string{ID(1)}, hitIDs(hits))
	require.InDelta(t, 1, hits[0].Score, scoreSlack)
	hits = query(t, o.Store, base, []float32{1, 0, 0}, 10, "v2")
	require.Empty(t, hits, "an overwritten birth must not be found")
	require.Len(t, allIDs(t, o.Store, base), 2)
}

func testDelete(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	rows := RandomRows(0, 30, 8, "v1")
	require.NoError(t, o.Store.Upsert(ctx, base, rows))
	gone := append(idsOf(rows[:10]), ID(999))
	require.NoError(t, o.Store.Delete(ctx, base, gone))
	require.NoError(t, o.Store.Delete(ctx, base, gone), "a second delete is fine")
	require.NoError(t, o.Store.Delete(ctx, base, nil))
	present, err := o.Store.Get(ctx, base, append(idsOf(rows), ID(999)), false)
	require.NoError(t, err)
	for i, row := range rows {
		require.Equal(t, i >= 10, present[row.ID].ID == row.ID, "row %d", i)
	}
	require.NotContains(t, present, ID(999))
	hits := query(t, o.Store, base, rows[3].Values, 30)
	require.Len(t, hits, 20)
	require.NotContains(t, hitIDs(hits), rows[3].ID)
}

func testGet(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	rows := append(RandomRows(0, 230, 8, "v1"), RandomRows(230, 460, 8, "v2")...)
	require.NoError(t, o.Store.Upsert(ctx, base, rows))
	for _, values := range []bool{false, true} {
		got, err := o.Store.Get(ctx, base, append(idsOf(rows), ID(999)), values)
		require.NoError(t, err)
		require.Len(t, got, len(rows))
		for _, row := range rows {
			require.Equal(t, []string{row.ID, row.DocumentID, row.Birth}, []string{got[row.ID].ID, got[row.ID].DocumentID, got[row.ID].Birth})
			if !values {
				require.Empty(t, got[row.ID].Values)
				continue
			}
			require.InDelta(t, 1, cosine(row.Values, got[row.ID].Values), 1e-6)
		}
	}
}

func testDimension(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	require.NoError(t, o.Store.Upsert(ctx, base, []ingest.Vector{Row(1, "v1", 1, 0, 0)}))
	requireCode(t, o.Store.Upsert(ctx, base, []ingest.Vector{Row(2, "v1", 1, 0)}), ingest.CodeDimension)
	requireCode(t, o.Store.Upsert(ctx, base, []ingest.Vector{Row(2, "v1", 1, 0, 0), Row(3, "v1", 1, 0)}), ingest.CodeDimension)
	_, err := o.Store.Query(ctx, base, []float32{1, 0}, 1, nil)
	requireCode(t, err, ingest.CodeDimension)
	require.Equal(t, []string{ID(1)}, allIDs(t, o.Store, base), "nothing of a refused call may be written")
}

func testBadRows(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, row := range map[string]ingest.Vector{
		"NaN": Row(1, "v1", nan, 1), "infinite": Row(1, "v1", inf, 1), "zero": Row(1, "v1", 0, 0), "no id": {Values: []float32{1, 0}},
	} {
		err := o.Store.Upsert(ctx, base, []ingest.Vector{Row(2, "v1", 1, 0), row})
		require.Error(t, err, name)
		requireCode(t, err, ingest.CodeVectorRejected)
	}
	_, err := o.Store.Query(ctx, base, []float32{nan, 1}, 1, nil)
	requireCode(t, err, ingest.CodeVectorRejected)
	require.Empty(t, allIDs(t, o.Store, base))
}

func testQueryOrder(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	rows := []ingest.Vector{
		Row(1, "v1", 0, 1, 0), Row(2, "v1", 10, 1, 0), Row(3, "v1", 1, 1, 0), Row(4, "v1", -1, 0, 0), Row(5, "v1", 0.001, 0, 0),
	}
	require.NoError(t, o.Store.Upsert(ctx, base, rows))
	hits := query(t, o.Store, base, []float32{2, 0, 0}, 10)
	require.Equal(t, []string{ID(5), ID(2), ID(3), ID(1), ID(4)}, hitIDs(hits), "by cosine, not by length")
	for i, want := range []float64{1, 10 / math.Sqrt(101), 1 / math.Sqrt2, 0, -1} {
		require.InDelta(t, want, hits[i].Score, scoreSlack)
	}
	hits = query(t, o.Store, base, []float32{2, 0, 0}, 2)
	require.Equal(t, []string{ID(5), ID(2)}, hitIDs(hits))
	hits = query(t, o.Store, base, []float32{2, 0, 0}, 0)
	require.Empty(t, hits)
}

func testExact(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	rows := RandomRows(0, 150, 24, "v1")
	require.NoError(t, o.Store.Upsert(ctx, base, rows))
	values := RandomRows(5000, 5001, 24, "q")[0].Values
	want := map[string]float64{}
	for _, row := range rows {
		want[row.ID] = cosine(values, row.Values)
	}
	hits := query(t, o.Store, base, values, 20)
	require.Len(t, hits, 20)
	ranked := slices.Clone(rows)
	slices.SortFunc(ranked, func(a, b ingest.Vector) int {
		if want[a.ID] > want[b.ID] {
			return -1
		}
		return 1
	})
	for i, hit := range hits {
		require.InDelta(t, want[hit.ID], hit.Score, scoreSlack)
		require.InDelta(t, want[ranked[i].ID], hit.Score, scoreSlack, "rank %d", i)
	}
}

func testBirths(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	var wanted []string
	for v := range 4 {
		rows := RandomRows(100*v, 100*v+25, 8, fmt.Sprintf("v%d", v))
		require.NoError(t, o.Store.Upsert(ctx, base, rows))
		if v == 1 || v == 3 {
			wanted = append(wanted, idsOf(rows)...)
		}
	}
	values := RandomRows(0, 1, 8, "q")[0].Values
	hits := query(t, o.Store, base, values, 100, "v1", "v3", "unknown")
	require.Len(t, hits, 50)
	require.ElementsMatch(t, wanted, hitIDs(hits), "no row of another birth")
	hits = query(t, o.Store, base, values, 100, "unknown")
	require.Empty(t, hits)
}

func testList(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	rows := RandomRows(0, 95, 4, "v1")
	require.NoError(t, o.Store.Upsert(ctx, base, rows))
	seen := map[string]int{}
	for offset := 0; ; {
		page, err := o.Store.List(ctx, base, offset, 20)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 20)
		if len(page) == 0 {
			break
		}
		for _, id := range page {
			seen[id]++
		}
		offset += len(page)
	}
	require.Len(t, seen, 95)
	for id, n := range seen {
		require.Equal(t, 1, n, id)
	}
	page, err := o.Store.List(ctx, base, 0, 0)
	require.NoError(t, err)
	require.Empty(t, page)
}

func testDrop(t *testing.T, o Opened) {
	base, other, ctx := Base(t), Base(t), t.Context()
	require.NoError(t, o.Store.Upsert(ctx, base, RandomRows(0, 5, 4, "v1")))
	require.NoError(t, o.Store.Upsert(ctx, other, RandomRows(0, 5, 4, "v1")))
	require.NoError(t, o.Store.Drop(ctx, base))
	require.Empty(t, allIDs(t, o.Store, base))
	require.Len(t, allIDs(t, o.Store, other), 5, "another base is untouched")
	// A dropped base may begin anew with another dimension.
	require.NoError(t, o.Store.Upsert(ctx, base, RandomRows(0, 3, 6, "v1")))
	require.Len(t, allIDs(t, o.Store, base), 3)
}

func testReopen(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	rows := RandomRows(0, 60, 8, "v1")
	require.NoError(t, o.Store.Upsert(ctx, base, rows))
	require.NoError(t, o.Store.Delete(ctx, base, idsOf(rows[:7])))
	require.NoError(t, o.Store.Upsert(ctx, base, []ingest.Vector{Row(10, "v2", rows[11].Values...)}))
	before, err := o.Store.Query(ctx, base, rows[20].Values, 60, nil)
	require.NoError(t, err)

	again := o.Reopen()
	after, err := again.Query(ctx, base, rows[20].Values, 60, nil)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Len(t, allIDs(t, again, base), 53)
	requireCode(t, again.Upsert(ctx, base, []ingest.Vector{Row(2, "v1", 1, 0)}), ingest.CodeDimension)
}

func testConcurrency(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	const writers, rounds, each = 6, 4, 10
	var group sync.WaitGroup
	errs := make(chan error, 3*writers*rounds)
	for w := range writers {
		group.Go(func() {
			for r := range rounds {
				start := 1000*w + each*r
				rows := RandomRows(start, start+each, 8, fmt.Sprintf("v%d", w))
				errs <- o.Store.Upsert(ctx, base, rows)
				errs <- o.Store.Delete(ctx, base, idsOf(rows[:each/2]))
				_, err := o.Store.Query(ctx, base, rows[0].Values, 5, nil)
				errs <- err
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, allIDs(t, o.Store, base), writers*rounds*each/2)
}

func testOddBases(t *testing.T, o Opened) {
	ctx := t.Context()
	suffix := Base(t)
	for i, base := range []string{"../" + suffix, "A" + suffix, "a" + suffix, "知识库" + suffix, suffix + "/x\x00", suffix + "."} {
		require.NoError(t, o.Store.Upsert(ctx, base, RandomRows(i, i+1, 4, "v1")), "base %q", base)
		require.Equal(t, []string{ID(i)}, allIDs(t, o.Store, base), "base %q", base)
	}
}

func testEndedContext(t *testing.T, o Opened) {
	base := Base(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := o.Store.Query(ctx, base, []float32{1, 0}, 1, nil)
	require.True(t, errors.Is(err, context.Canceled), "got %v", err)
	_, err = o.Store.Get(ctx, base, []string{ID(1)}, false)
	require.True(t, errors.Is(err, context.Canceled), "got %v", err)
}

func testManyRows(t *testing.T, o Opened) {
	base, ctx := Base(t), t.Context()
	rows := RandomRows(0, 1250, 16, "v1")
	require.NoError(t, o.Store.Upsert(ctx, base, rows), "more rows than one request takes")
	present, err := o.Store.Get(ctx, base, append(idsOf(rows), ID(99999)), false)
	require.NoError(t, err)
	for _, row := range rows {
		require.Contains(t, present, row.ID)
	}
	require.NotContains(t, present, ID(99999))
	require.NoError(t, o.Store.Delete(ctx, base, idsOf(rows[:1100])))
	require.Len(t, allIDs(t, o.Store, base), 150)
}

// Dropped tests that a store meets a base's collection as another process has left it: dropped, or made anew with another dimension.
func Dropped(t *testing.T, one, other ingest.VectorStore) {
	t.Helper()
	base, ctx := Base(t), t.Context()
	for name, call := range map[string]func() error{
		"query":  func() error { _, err := one.Query(ctx, base, []float32{1, 0, 0, 0}, 3, nil); return err },
		"get":    func() error { _, err := one.Get(ctx, base, []string{ID(1)}, true); return err },
		"list":   func() error { _, err := one.List(ctx, base, 0, 3); return err },
		"delete": func() error { return one.Delete(ctx, base, []string{ID(1)}) },
		"upsert": func() error { return one.Upsert(ctx, base, RandomRows(0, 3, 4, "v")) },
	} {
		require.NoError(t, one.Upsert(ctx, base, RandomRows(0, 3, 4, "v")))
		require.NoError(t, other.Drop(ctx, base))
		require.NoError(t, call(), name)
	}
	require.NoError(t, other.Drop(ctx, base))
	require.NoError(t, other.Upsert(ctx, base, RandomRows(0, 3, 6, "v")))
	for name, err := range map[string]error{
		"upsert": one.Upsert(ctx, base, RandomRows(0, 3, 4, "v")),
		"query":  func() error { _, err := one.Query(ctx, base, []float32{1, 0, 0, 0}, 3, nil); return err }(),
	} {
		require.Equal(t, ingest.CodeDimension, ingest.AsFailure(err).Code, "%s: another dimension by now: %v", name, err)
	}
	require.NoError(t, one.Upsert(ctx, base, RandomRows(3, 4, 6, "v")))
}
