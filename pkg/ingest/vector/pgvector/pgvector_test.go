package pgvector_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/pgvector"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }

func newStore(t testing.TB, url string, change func(*pgvector.Config)) *pgvector.Store {
	t.Helper()
	cfg := pgvector.NewDefaultConfig()
	cfg.URL = url
	if change != nil {
		change(&cfg)
	}
	store, err := pgvector.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func TestConformance(t *testing.T) {
	t.Parallel()
	url := labserver.PGVectorDatabase(t)
	vectortest.Run(t, func(t testing.TB) vectortest.Opened {
		open := func() ingest.VectorStore { return newStore(t, url, nil) }
		return vectortest.Opened{Store: open(), Reopen: open}
	})
}

// The extension may lie in any schema, and need not be on the search path.
func TestConformanceWithTheExtensionElsewhere(t *testing.T) {
	t.Parallel()
	url := labserver.PGVectorDatabase(t)
	admin(t, url, `CREATE SCHEMA "Ext ensions"; CREATE EXTENSION vector SCHEMA "Ext ensions"`)
	vectortest.Run(t, func(t testing.TB) vectortest.Opened {
		open := func() ingest.VectorStore { return newStore(t, url+"&search_path=pg_catalog", nil) }
		return vectortest.Opened{Store: open(), Reopen: open}
	})
}
