package chroma_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

func BenchmarkUpsert(b *testing.B) {
	cfg := chroma.NewDefaultConfig()
	cfg.BaseURL = labserver.Chroma(b).URL("")
	store, err := chroma.New(cfg)
	require.NoError(b, err)
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
