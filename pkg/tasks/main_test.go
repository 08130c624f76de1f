package tasks_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

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
