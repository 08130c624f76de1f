package upload_test

import (
	"testing"

	"github.com/millweir/millweir/pkg/ingest/ingesttest"
)

func TestMain(m *testing.M) { ingesttest.Main(m) }

// world is an application on a database of its own, with this package's own helpers.
type world struct{ *ingesttest.World }

func newWorld(t testing.TB, o ingesttest.Options) *world {
	t.Helper()
	return &world{ingesttest.NewWorld(t, o)}
}

func onEachDatabase(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) { test(t, &world{w}) })
}
