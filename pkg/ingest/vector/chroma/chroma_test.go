package chroma_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := labserver.Chroma(t)
	vectortest.Run(t, func(t testing.TB) vectortest.Opened {
		open := func() ingest.VectorStore {
			cfg := chroma.NewDefaultConfig()
			cfg.BaseURL = server.URL("")
			store, err := chroma.New(cfg)
			require.NoError(t, err)
			t.Cleanup(func() { _ = store.Close() })
			return store
		}
		return vectortest.Opened{Store: open(), Reopen: open}
	})
}
