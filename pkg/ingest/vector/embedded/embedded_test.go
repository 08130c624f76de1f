package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/embedded"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	vectortest.Run(t, func(t testing.TB) vectortest.Opened {
		dir := t.TempDir()
		var current *embedded.Store
		open := func() ingest.VectorStore {
			if current != nil {
				require.NoError(t, current.Close())
			}
			store, err := embedded.Open(dir, embedded.Options{})
			require.NoError(t, err)
			current = store
			return store
		}
		t.Cleanup(func() { require.NoError(t, current.Close()) })
		return vectortest.Opened{Store: open(), Reopen: open}
	})
}
