package pgvector_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

func BenchmarkUpsert(b *testing.B) {
	store := newStore(b, labserver.PGVectorDatabase(b), nil)
	base, n := vectortest.Base(b), 0
	for b.Loop() {
		b.StopTimer()
		rows := vectortest.RandomRows(n, n+200, 384, "v")
		n += 200
		b.StartTimer()
		require.NoError(b, store.Upsert(b.Context(), base, rows))
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}
