package documents

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
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

// The model before has as large a budget as the new one, and of its own.
func TestEachModelHasItsBudget(t *testing.T) {
	t.Parallel()
	service := process.NewDSN(embedtest.Start(t, embedtest.Options{}).URL)
	p := &Parts{Base: wiring.New(&process.Env{
		Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(),
	})}
	require.NoError(t, p.OpenEmbedder(Embedding{
		URL: service, Model: "now", API: "openai", PreviousURL: service, PreviousModel: "before", PreviousAPI: "openai", BatchSize: 8, Timeout: time.Second, Requests: 1,
	}))
	for _, model := range []ingest.Embedder{p.Embedder, p.Earlier[0]} {
		_, err := model.Embed(t.Context(), []string{"one"})
		require.NoError(t, err, model.Model().Key)
		_, err = model.Embed(t.Context(), []string{"two"})
		require.ErrorContains(t, err, "the budget of the embedding model is used up", model.Model().Key)
	}
}
