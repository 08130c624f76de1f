package embedcache_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// What several runs have paid for meanwhile is committed together, a text that two of them paid for once; so are looks.
func TestEmbeddingCacheIsShared(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		s := ingesttest.MeteredStore{Database: w.Store, Calls: map[string]int{}, Statements: map[string]int{}, Mu: &sync.Mutex{}}
		w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Store = s }})
		entry := func(n int) embedcache.Entry {
			text := fmt.Sprint("text ", n)
			e := embedcache.Entry{Vector: ingesttest.VectorOfText(text, 8)}
			copy(e.Hash[:], text)
			return e
		}
		var paid []*embedcache.CachePaid
		var looks []*embedcache.EmbeddingRead
		for i := range 6 {
			model := fmt.Sprint("m", i%2)
			paid = append(paid, embedcache.NewPaid(model, entry(100), entry(i)))
			looks = append(looks, embedcache.NewLook(model, entry(i).Hash, entry(7).Hash, entry(i).Hash))
		}
		for _, err := range w.App.Cache.Pay(t.Context(), paid...) {
			require.NoError(t, err)
		}
		require.Equal(t, 1, s.Calls["tx"])
		require.Equal(t, 1, s.Statements["tx"])
		require.Equal(t, 8, w.Number(`SELECT COUNT(*) FROM embedding_ledger`))

		for _, err := range w.App.Cache.LookUp(t.Context(), looks...) {
			require.NoError(t, err)
		}
		require.Equal(t, 2, s.Statements["read"], "one for each model")
		for i, l := range looks {
			require.Equal(t, map[embedcache.TextHash]int{entry(i).Hash: 8}, l.Known())
		}
		found, err := w.App.Cache.Vectors(t.Context(), "m1", []embedcache.TextHash{entry(100).Hash, entry(0).Hash})
		require.NoError(t, err)
		require.Equal(t, map[embedcache.TextHash][]float32{entry(100).Hash: entry(100).Vector}, found, "the other is another model's")
	})
}

// What was paid for is not paid for again because its COMMIT got no answer: the embedding cache's rows can be written twice.
func TestEmbeddingCacheIsWrittenAgainAfterAnUnknownCommit(t *testing.T) {
	t.Parallel()
	mute := &ingesttest.MuteStore{}
	w := ingesttest.NewWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) { mute.Database = d.Store; d.Store = mute }})
	mute.Left.Store(2)
	require.NoError(t, w.App.Cache.Add(t.Context(), "m", []embedcache.Entry{{Hash: embedcache.TextHash{1}, Vector: []float32{1, 2}}}))
	require.EqualValues(t, 1, w.Number("SELECT COUNT(*) FROM embedding_ledger"))

	over, cancel := context.WithCancel(t.Context())
	cancel()
	mute.Left.Store(1)
	require.ErrorIs(t, w.App.Cache.Add(over, "m", []embedcache.Entry{{Hash: embedcache.TextHash{2}, Vector: []float32{1, 2}}}), taskstate.ErrOutcomeUnknown,
		"a run whose time is over tries once")
}
