// Package vectortest is the suite that every vector store passes.
//
//	func TestConformance(t *testing.T) { vectortest.Run(t, func(t testing.TB) vectortest.Opened { … }) }
package vectortest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

// scoreSlack is how far a store's float32 score may be from the one computed here.
const scoreSlack = 1e-4

// Opened is a store and the way to close it and open the same data again.
type Opened struct {
	Store  ingest.VectorStore
	Reopen func() ingest.VectorStore // the store of before is closed or no longer used
}

// baseCount makes the bases of one test process differ.
var baseCount atomic.Int64

// Run runs the suite; open is called once for each of its tests, which run at the same time.
func Run(t *testing.T, open func(t testing.TB) Opened) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Opened){
		"PingAnswers": testPing, "MissingCollectionIsEmpty": testMissing, "UpsertIsIdempotent": testIdempotent,
		"LastWins": testLastWins, "DeleteAbsentIsFine": testDelete, "DimensionMismatchIsPermanent": testDimension,
		"BadRowsAreRefused": testBadRows, "QueryOrder": testQueryOrder, "QueryMatchesExactScan": testExact,
		"BirthsFilter": testBirths, "ListPages": testList, "DropForgets": testDrop, "ReopenKeeps": testReopen,
		"Concurrency": testConcurrency, "OddBaseNames": testOddBases, "EndedContext": testEndedContext,
		"ManyRows": testManyRows, "GetReturnsRows": testGet,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// ID is 64 hex characters made of n.
func ID(n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "row %d", n))
	return hex.EncodeToString(sum[:])
}

// Base is a base id that no other test of this process uses.
func Base(t testing.TB) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", t.Name(), baseCount.Add(1)))
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-7" + h[13:16] + "-8" + h[17:20] + "-" + h[20:]
}

// Row is a row with the given values.
func Row(n int, birth string, values ...float32) ingest.Vector {
	return ingest.Vector{ID: ID(n), DocumentID: "doc-" + birth, Birth: birth, Values: values}
}

// RandomRows are rows from..to-1 of random directions, the same for the same numbers.
func RandomRows(from, to, dim int, birth string) []ingest.Vector {
	rows := make([]ingest.Vector, 0, to-from)
	for n := from; n < to; n++ {
		r := rand.New(rand.NewPCG(uint64(n), 7))
		values := make([]float32, dim)
		for i := range values {
			values[i] = float32(r.NormFloat64())
		}
		rows = append(rows, Row(n, birth, values...))
	}
	return rows
}

func idsOf(rows []ingest.Vector) []string {
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	return ids
}

func hitIDs(hits []ingest.Hit) []string {
	ids := make([]string, len(hits))
	for i, hit := range hits {
		ids[i] = hit.ID
	}
	return ids
}

func query(t *testing.T, s ingest.VectorStore, base string, values []float32, k int, births ...string) []ingest.Hit {
	t.Helper()
	hits, err := s.Query(t.Context(), base, values, k, births)
	require.NoError(t, err)
	return hits
}

func requireCode(t *testing.T, err error, code ingest.Code) {
	t.Helper()
	var f *ingest.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Error())
	require.True(t, f.Permanent, "%s must be permanent", code)
	require.False(t, f.Throttled)
}

func allIDs(t *testing.T, s ingest.VectorStore, base string) []string {
	t.Helper()
	var all []string
	for {
		page, err := s.List(t.Context(), base, len(all), 70)
		require.NoError(t, err)
		if len(page) == 0 {
			slices.Sort(all)
			return all
		}
		all = append(all, page...)
	}
}

func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return dot / math.Sqrt(aa*bb)
}

// BenchUpsert writes new rows of 384 values into one collection, 200 a call.
func BenchUpsert(b *testing.B, store ingest.VectorStore) {
	base, n := Base(b), 0
	for b.Loop() {
		b.StopTimer()
		rows := RandomRows(n, n+200, 384, "v")
		n += 200
		b.StartTimer()
		require.NoError(b, store.Upsert(b.Context(), base, rows))
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}
