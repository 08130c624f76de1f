package vector_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// A collection's name is also a file's: no base may leave its place, and no two bases may share one, not even on a
// file system that does not tell cases apart.
func TestCollectionName(t *testing.T) {
	t.Parallel()
	rule := regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]$`) // Chroma's
	require.Equal(t, "kb-0199f3a1-7c2e-7bd4-9a51-3f1d2c4b5a69", vector.CollectionName("0199f3a1-7c2e-7bd4-9a51-3f1d2c4b5a69"))
	seen := map[string]string{}
	for _, base := range []string{
		"", "a", "A", "ab", "AB", "Ab", "-ab", "ab-", "../x", "..", "x/y", "x\\y", "x\x00", "知识", "x.y", strings.Repeat("a", 100), strings.Repeat("a", 101),
	} {
		name := vector.CollectionName(base)
		require.Regexp(t, rule, name, "%q", base)
		require.Equal(t, strings.ToLower(name), name)
		require.NotContains(t, seen, name, "%q and %q", base, seen[name])
		seen[name] = base
	}
}

func TestLastWins(t *testing.T) {
	t.Parallel()
	row := func(id, birth string) ingest.Vector { return ingest.Vector{ID: id, Birth: birth} }
	in := []ingest.Vector{row("a", "1"), row("b", "1"), row("a", "2"), row("c", "1"), row("b", "2")}
	require.Equal(t, []ingest.Vector{row("a", "2"), row("c", "1"), row("b", "2")}, vector.LastWins(in))
	require.Equal(t, in[:2], vector.LastWins(in[:2]))
	require.Empty(t, vector.LastWins(nil))
}

func TestCheckRowsRefusesLongIDs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", vector.MaxIDBytes+1)
	for _, bad := range []ingest.Vector{{ID: long}, {ID: "a", DocumentID: long}, {ID: "a", Birth: long}, {}} {
		bad.Values = []float32{1}
		_, err := vector.CheckRows([]ingest.Vector{bad})
		require.ErrorIs(t, err, vector.ErrBadRow)
		require.Equal(t, ingest.CodeVectorRejected, ingest.AsFailure(err).Code)
	}
	dim, err := vector.CheckRows([]ingest.Vector{{ID: "a", Values: []float32{1, 2}}})
	require.NoError(t, err)
	require.Equal(t, 2, dim)
}
