package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embedcache"
)

func TestGateBoundsAndReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10)
		reports := 0
		enter := func(ctx context.Context, n int) (func(), error) {
			return g.enter(ctx, n, func() { reports++ })
		}
		all, err := enter(t.Context(), 99) // more than fits in counts as all
		require.NoError(t, err)

		entered := make(chan func())
		go func() {
			leave, err := enter(t.Context(), 7)
			require.NoError(t, err)
			entered <- leave
		}()
		<-time.After(25 * time.Second) // of the bubble's clock
		synctest.Wait()
		require.Equal(t, 2, reports, "who waits for its turn says so: starved is not stalled")
		all()
		some := <-entered

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = enter(ctx, 4)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		rest, err := enter(t.Context(), 3)
		require.NoError(t, err, "who went takes no room")
		rest()
		some()
		all, err = enter(t.Context(), 10)
		require.NoError(t, err)
		all()
	})
}

// What all runs keep is bounded too, and a run that ends gives its room back.
func TestVectorsInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	w := &Worker{}
	vector := make([]float32, 64<<10)
	var caches []*vectorCache
	kept := func(c *vectorCache) (n int) {
		for i := range 100 {
			h := embedcache.TextHash{byte(i)}
			c.put(h, vector)
			c.put(h, vector) // counts once
			if c.get(h) != nil {
				n++
			}
		}
		return n
	}
	for range 5 {
		caches = append(caches, newVectorCache(&w.cached))
	}
	size := len(vector) * embedcache.BytesFloat
	for i, c := range caches {
		want := cacheBytes / size
		if i == 4 {
			want = 0 // the others have all
		}
		require.Equal(t, want, kept(c), i)
	}
	caches[0].close()
	caches[0].close()
	require.Equal(t, cacheBytes/size, kept(caches[4]))
	for _, c := range caches {
		c.close()
	}
	require.Zero(t, w.cached.Load())
}
