package qdrant_test

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector/qdrant"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

// FuzzPayload writes any ids, documents and births: what is taken comes back as it was, is found by its birth, and is deleted.
func FuzzPayload(f *testing.F) {
	for _, seed := range [][3]string{
		{"plain", "doc", "v1"}, {"", "", ""}, {"a\x00b", "\x00", "\x00"}, {`"},{"id":1`, `'; DROP`, `\u0000`}, {"\xff\xfe", "d", "v"},
		{"知识库", "🪨", "\u202e"}, {strings.Repeat("\x01", 512), strings.Repeat("<", 512), strings.Repeat("€", 170)}, {"{{x}}", "${y}", "%s%n"},
		{"00000000-0000-0000-0000-000000000000", "1", "true"}, {"\u2028", "\r\n", "null"}, {strings.Repeat("x", 513), "d", "v"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, id, document, birth string) {
		ctx := t.Context()
		store := newStore(t, labserver.Qdrant(t).URL(""), nil)
		sum := sha256.Sum256([]byte(id + "\x00" + document + "\x00" + birth))
		base := hex.EncodeToString(sum[:])
		row := ingest.Vector{ID: id, DocumentID: document, Birth: birth, Values: []float32{1, 2}}
		err := store.Upsert(ctx, base, []ingest.Vector{row, vectortest.Row(1, "other", 2, 1)})
		if id == "" || len(id) > 512 || len(document) > 512 || len(birth) > 512 || !utf8.ValidString(id+document+birth) {
			require.Equal(t, ingest.CodeVectorRejected, ingest.AsFailure(err).Code)
			return
		}
		require.NoError(t, err)
		got, err := store.Get(ctx, base, []string{id}, false)
		require.NoError(t, err)
		require.Equal(t, map[string]ingest.Vector{id: {ID: id, DocumentID: document, Birth: birth}}, got)
		if birth != "other" {
			hits, err := store.Query(ctx, base, row.Values, 5, []string{birth})
			require.NoError(t, err)
			require.Len(t, hits, 1)
			require.Equal(t, id, hits[0].ID)
		}
		require.NoError(t, store.Delete(ctx, base, []string{id}))
		ids, err := store.List(ctx, base, 0, 5)
		require.NoError(t, err)
		require.Equal(t, []string{vectortest.ID(1)}, ids)
		require.NoError(t, store.Drop(ctx, base))
	})
}

// The point of an id is the same in every release, or rows would be written twice.
func TestPointsOfIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ca978112-ca1b-8dca-bac2-31b39a23dc4d", qdrant.PointID("a"))
	seen := map[string]bool{}
	for n := range 1000 {
		p := qdrant.PointID(vectortest.ID(n))
		require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), p)
		require.False(t, seen[p])
		seen[p] = true
	}
}
