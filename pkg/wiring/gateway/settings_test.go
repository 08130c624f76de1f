package gateway_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/gateway"
)

// What a reranking service needs is asked for when there is one, and its secrets are not shown.
func TestSearchSettings(t *testing.T) {
	t.Setenv("RERANK_API_KEY", "sk-very-secret")
	s, err := process.Load[gateway.Search]()
	require.NoError(t, err, "none is set")
	require.InDelta(t, 0.8, s.TextWeight, 0)
	t.Setenv("RERANK_BASE_URL", "http://u:sk-very-secret@h:8080")
	_, err = process.Load[gateway.Search]()
	require.ErrorContains(t, err, "RERANK_API: auto, and the path of RERANK_BASE_URL is none of")
	require.NotContains(t, err.Error(), "sk-very-secret")
	t.Setenv("RERANK_API", "tei")
	s, err = process.Load[gateway.Search]()
	require.NoError(t, err)
	require.Equal(t, 32, s.RerankTop)
	t.Setenv("RERANK_API", "jina")
	_, err = process.Load[gateway.Search]()
	require.ErrorContains(t, err, "RERANK_MODEL: must be set, RERANK_API is jina")
	t.Setenv("RERANK_TOP_N", "51")
	_, err = process.Load[gateway.Search]()
	require.ErrorContains(t, err, "RERANK_TOP_N: 51 is out of range, allowed: 1..50")
}
