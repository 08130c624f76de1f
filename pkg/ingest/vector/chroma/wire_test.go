package chroma_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestVectorsTravelAsBase64(t *testing.T) {
	t.Parallel()
	var body struct {
		Embeddings []string `json:"embeddings"`
	}
	server := writeServer(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&body) // an array of numbers leaves it empty
		answer(w, http.StatusOK, "{}")
	})
	values := []float32{0, -1.5, math.MaxFloat32, 1e-45}
	require.NoError(t, newStore(t, server.URL, nil).Upsert(t.Context(), "base", []ingest.Vector{{ID: "a", DocumentID: "d", Birth: "v", Values: values}}))
	require.Len(t, body.Embeddings, 1)
	raw, err := base64.StdEncoding.DecodeString(body.Embeddings[0])
	require.NoError(t, err)
	got := make([]float32, len(values))
	_, err = binary.Decode(raw, binary.LittleEndian, got)
	require.NoError(t, err)
	require.Equal(t, values, got)
}
