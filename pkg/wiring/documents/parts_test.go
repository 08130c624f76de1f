package documents

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring"
)

func TestEmbedderIsChosenByItsURL(t *testing.T) {
	p := &Parts{Base: wiring.New(&process.Env{
		Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(),
	})}
	require.NoError(t, p.OpenEmbedder(Embedding{}))
	require.Equal(t, "local-lexical/1", p.Embedder.Model().Key)
	e := Embedding{URL: process.NewDSN("http://127.0.0.1:1/v1"), Model: "m", API: "openai", BatchSize: 8, Timeout: time.Second}
	require.NoError(t, p.OpenEmbedder(e))
	require.Contains(t, p.Embedder.Model().Key, "m")
	require.Contains(t, e.describe(), "model m")
	e.Model = ""
	require.ErrorContains(t, p.OpenEmbedder(e), "EMBEDDING_")
}
