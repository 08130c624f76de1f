package qdrant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/qdrant"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
)

// gate is a fake store whose writes wait until they are let go; rows whose ids begin with "bad" are refused.
type gate struct {
	mu      sync.Mutex
	writes  [][]string
	held    atomic.Int64 // rows of writes that have come
	entered chan struct{}
	open    chan struct{}
}

func newGate(t *testing.T) (*gate, *qdrant.Store) {
	t.Helper()
	g := &gate{entered: make(chan struct{}, 100), open: make(chan struct{})}
	server := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Points []struct {
				Payload map[string]string `json:"payload"`
			} `json:"points"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		var ids []string
		for _, p := range body.Points {
			ids = append(ids, p.Payload["id"])
		}
		g.held.Add(int64(len(ids)))
		g.entered <- struct{}{}
		select {
		case <-g.open:
		case <-r.Context().Done():
			return
		}
		g.mu.Lock()
		g.writes = append(g.writes, ids)
		g.mu.Unlock()
		if slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, "bad") }) {
			reply(w, http.StatusBadRequest, `{"status":{"error":"Wrong input: no"}}`)
			return
		}
		reply(w, http.StatusOK, completed)
	})
	return g, newStore(t, server.URL, nil)
}

// named is a row with an id.
func named(id string) []ingest.Vector {
	row := vectortest.Row(0, "v", 1, 2, 3, 4)
	row.ID = id
	return []ingest.Vector{row}
}

// Documents that are done at the same time share a request; what waits for it goes with the next one.
func TestWaitingCallersAreWrittenTogether(t *testing.T) {
	t.Parallel()
	g, store := newGate(t)
	var wg sync.WaitGroup
	errs := make([]error, 200)
	for i := range errs {
		wg.Go(func() { errs[i] = store.Upsert(t.Context(), "base", named(fmt.Sprint("id", i))) })
	}
	require.Eventually(t, func() bool { return int(g.held.Load())+store.Waiting("base") == len(errs) }, time.Minute, time.Millisecond)
	close(g.open)
	wg.Wait()
	seen := map[string]int{}
	for _, ids := range g.writes {
		for _, id := range ids {
			seen[id]++
		}
	}
	require.Len(t, seen, len(errs))
	require.Less(t, len(g.writes), len(errs)/2)
	for i, err := range errs {
		require.NoError(t, err, i)
	}
	require.Zero(t, store.Waiting("base"))
}

func TestARefusedCallFailsAlone(t *testing.T) {
	t.Parallel()
	g, store := newGate(t)
	close(g.open)
	ids := []string{"good1", "bad", "good2", "good3"}
	errs := make([]error, len(ids))
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() { errs[i] = store.Upsert(t.Context(), "base", named(ids[i])) })
	}
	wg.Wait()
	for i, err := range errs {
		if ids[i] == "bad" {
			require.True(t, ingest.AsFailure(err).Permanent)
			require.ErrorContains(t, err, "Wrong input: no")
		} else {
			require.NoError(t, err)
		}
	}
}

// While one collection's writers hang, another's go through, and who waits can leave.
func TestCollectionsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	g, store := newGate(t)
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	require.ErrorIs(t, store.Upsert(ctx, "slow", named("a")), context.DeadlineExceeded)
	var wg sync.WaitGroup
	wg.Go(func() { _ = store.Upsert(t.Context(), "slow", named("b")) })
	<-g.entered
	hits, err := store.Query(ctx, "slow", []float32{1, 0, 0, 0}, 0, nil)
	require.NoError(t, err)
	require.Empty(t, hits)
	close(g.open)
	wg.Wait()
}
