package dev

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/local"
	"github.com/millweir/millweir/pkg/process"
)

// A provider that makes other vectors of searches than of documents is told which is which, within a budget that Redis keeps.
func TestAProviderIsToldSearchesFromDocuments(t *testing.T) {
	var mu sync.Mutex
	asked := map[string][]string{} // input_type → texts
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Input []string
			Type  string `json:"input_type"`
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || r.URL.Path != "/v1/embeddings" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		mu.Lock()
		asked[body.Type] = append(asked[body.Type], body.Input...)
		mu.Unlock()
		type item struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		}
		data := make([]item, len(body.Input))
		for i, text := range body.Input {
			data[i] = item{i, local.Vector(text)}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "usage": map[string]int{"total_tokens": 12 * len(data)}})
	}))
	defer service.Close()
	for name, value := range map[string]string{
		"EMBEDDING_BASE_URL": service.URL, "EMBEDDING_API": "voyage", "EMBEDDING_MODEL": "voyage-3.5",
		"EMBEDDING_REQUESTS_PER_MINUTE": "60000", "EMBEDDING_TOKENS_PER_MINUTE": "6000000",
	} {
		t.Setenv(name, value)
	}
	url, stop := start(t, t.TempDir())
	const text = "Otters hold hands while they sleep on the water."
	require.Equal(t, "SUCCEEDED", upload(t, url, "otters.txt", text))
	require.Equal(t, "otters.txt", find(t, url, "otters hold hands")[0])
	require.Equal(t, process.ExitOK, stop())
	require.Equal(t, map[string][]string{"document": {text}, "query": {"otters hold hands"}}, asked)
}
