package ingest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What several runs have paid for meanwhile is committed together, a text that two of them paid for once; so are looks.
func TestEmbeddingCacheIsShared(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		s := meteredStore{Store: w.store, calls: map[string]int{}, statements: map[string]int{}, mu: &sync.Mutex{}}
		w.build(worldOptions{deps: func(d *Deps) { d.Store = s }})
		entry := func(n int) embeddingEntry {
			text := fmt.Sprint("text ", n)
			e := embeddingEntry{vector: vectorOfText(text, 8)}
			copy(e.hash[:], text)
			return e
		}
		var paid []*cachePaid
		var looks []*embeddingRead
		for i := range 6 {
			model := fmt.Sprint("m", i%2)
			paid = append(paid, &cachePaid{model: model, entries: []embeddingEntry{entry(100), entry(i)}})
			looks = append(looks, &embeddingRead{model: model, hashes: []textHash{entry(i).hash, entry(7).hash, entry(i).hash}})
		}
		for _, err := range w.app.paid.Do(t.Context(), paid...) {
			require.NoError(t, err)
		}
		require.Equal(t, 1, s.calls["tx"])
		require.Equal(t, 1, s.statements["tx"])
		require.Equal(t, 8, w.number(`SELECT COUNT(*) FROM embedding_ledger`))

		for _, err := range w.app.looks.Do(t.Context(), looks...) {
			require.NoError(t, err)
		}
		require.Equal(t, 2, s.statements["read"], "one for each model")
		for i, l := range looks {
			require.Equal(t, map[textHash]int{entry(i).hash: 8}, l.known)
		}
		found, err := w.app.cacheVectors(t.Context(), "m1", []textHash{entry(100).hash, entry(0).hash})
		require.NoError(t, err)
		require.Equal(t, map[textHash][]float32{entry(100).hash: entry(100).vector}, found, "the other is another model's")
	})
}
