package qdrant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/qdrant"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }

func newStore(t testing.TB, url string, change func(*qdrant.Config)) *qdrant.Store {
	t.Helper()
	cfg := qdrant.NewDefaultConfig()
	cfg.URL = url
	if change != nil {
		change(&cfg)
	}
	store, err := qdrant.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// Qdrant's engine behind its API: see labserver's qdrant.py for what that shows.
func TestConformance(t *testing.T) {
	t.Parallel()
	url := labserver.Qdrant(t).URL("")
	vectortest.Run(t, func(t testing.TB) vectortest.Opened {
		open := func() ingest.VectorStore { return newStore(t, url, nil) }
		return vectortest.Opened{Store: open(), Reopen: open}
	})
}
