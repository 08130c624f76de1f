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
	vectortest.BenchUpsert(b, store)
}
