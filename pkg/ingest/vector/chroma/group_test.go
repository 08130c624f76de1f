package chroma_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
)

// gate is a fake store whose first write waits until it is let go; ids that begin with "bad" are refused.
type gate struct {
	mu      sync.Mutex
	writes  [][]string
	entered chan struct{}
	open    chan struct{}
}

func newGate(t *testing.T) (*gate, *chroma.Store) {
	g := &gate{entered: make(chan struct{}, 100), open: make(chan struct{})}
	server := writeServer(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			IDs []string `json:"ids"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		g.entered <- struct{}{}
		select {
		case <-g.open:
		case <-r.Context().Done():
			return
		}
		g.mu.Lock()
		g.writes = append(g.writes, body.IDs)
		g.mu.Unlock()
		if slices.ContainsFunc(body.IDs, func(id string) bool { return strings.HasPrefix(id, "bad") }) {
			answer(w, http.StatusUnprocessableEntity, `{"error":"InvalidArgumentError","message":"no"}`)
			return
		}
		answer(w, http.StatusOK, `{}`)
	})
	return g, newStore(t, server.URL, nil)
}

// written is how often each id was written.
func (g *gate) written() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]int{}
	for _, w := range g.writes {
		for _, id := range w {
			out[id]++
		}
	}
	return out
}

func oneRow(id string) []ingest.Vector {
	return []ingest.Vector{{ID: id, DocumentID: "d", Birth: "v", Values: []float32{1, 2, 3}}}
}

func TestWaitingCallersAreWrittenTogether(t *testing.T) {
	t.Parallel()
	g, store := newGate(t)
	var wg sync.WaitGroup
	errs := make([]error, 50)
	wg.Go(func() { errs[0] = store.Upsert(t.Context(), "base", oneRow("id0")) })
	<-g.entered // the write lock is taken
	for i := 1; i < len(errs); i++ {
		wg.Go(func() { errs[i] = store.Upsert(t.Context(), "base", oneRow(fmt.Sprintf("id%d", i))) })
	}
	require.Eventually(t, func() bool { return store.Waiting("base") == len(errs)-1 }, time.Minute, time.Millisecond)
	close(g.open)
	wg.Wait()
	for i, err := range errs {
		require.NoError(t, err, i)
	}
	require.Len(t, g.written(), len(errs))
	require.Len(t, g.writes, 2, "the first call, and all others as one")
}

func TestARefusedCallFailsAlone(t *testing.T) {
	t.Parallel()
	g, store := newGate(t)
	ids := []string{"first", "good1", "bad", "good2"}
	errs := make([]error, len(ids))
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = store.Upsert(t.Context(), "base", oneRow(ids[0])) })
	<-g.entered
	for i := 1; i < len(ids); i++ {
		wg.Go(func() { errs[i] = store.Upsert(t.Context(), "base", oneRow(ids[i])) })
	}
	require.Eventually(t, func() bool { return store.Waiting("base") == len(ids)-1 }, time.Minute, time.Millisecond)
	close(g.open)
	wg.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.True(t, ingest.AsFailure(errs[2]).Permanent)
	require.NoError(t, errs[3])
}

func TestALeaderThatLeavesTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	g, store := newGate(t)
	ctx, leave := context.WithCancel(t.Context())
	var first, second error
	var wg sync.WaitGroup
	wg.Go(func() { first = store.Upsert(ctx, "base", oneRow("a")) })
	<-g.entered
	wg.Go(func() { second = store.Upsert(t.Context(), "base", oneRow("b")) })
	require.Eventually(t, func() bool { return store.Waiting("base") == 1 }, time.Minute, time.Millisecond)
	leave()
	<-g.entered // the second writes now
	close(g.open)
	wg.Wait()
	require.ErrorIs(t, first, context.Canceled)
	require.NoError(t, second)
	require.Equal(t, 1, g.written()["b"])
	require.Zero(t, store.Waiting("base"))
}
