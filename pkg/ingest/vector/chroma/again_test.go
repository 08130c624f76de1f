package chroma_test

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
)

// What Chroma applies again must cost nothing (see Store.upsert; issue: silent for 10–46 s): only rows that are held are upserted.
func TestNewRowsAreAdded(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	wrote := map[string][]string{}
	server := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			IDs []string `json:"ids"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		mu.Lock()
		defer mu.Unlock()
		operation := path.Base(r.URL.Path)
		if operation != "get" {
			wrote[operation] = append(wrote[operation], body.IDs...)
			answer(w, http.StatusOK, "{}")
			return
		}
		var reply struct {
			IDs []string `json:"ids"`
		}
		for _, id := range body.IDs {
			if slices.Contains(wrote["add"], id) {
				reply.IDs = append(reply.IDs, id)
			}
		}
		_ = json.NewEncoder(w).Encode(reply)
	})
	store := newStore(t, server.URL, nil)
	require.NoError(t, store.Upsert(t.Context(), "base", vectortest.RandomRows(0, 2, 4, "v")))
	require.Equal(t, map[string][]string{"add": {vectortest.ID(0), vectortest.ID(1)}}, wrote)
	require.NoError(t, store.Upsert(t.Context(), "base", vectortest.RandomRows(1, 4, 4, "v")))
	require.Equal(t, map[string][]string{
		"add": {vectortest.ID(0), vectortest.ID(1), vectortest.ID(2), vectortest.ID(3)}, "upsert": {vectortest.ID(1)},
	}, wrote)
}
