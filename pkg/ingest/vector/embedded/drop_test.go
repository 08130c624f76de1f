package embedded

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// A Drop that found no collection must not take the file of one that was made in the meantime: its rows would be
// written to a file without a name, and be gone at the next start.
func TestDropOfNothingLeavesWhatWasMadeMeanwhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	c, err := s.open("base", 0) // as Drop begins
	require.NoError(t, err)
	require.Nil(t, c)
	require.NoError(t, s.Upsert(t.Context(), "base", []ingest.Vector{{ID: "a", Birth: "v", Values: []float32{1, 0}}}))
	name := vector.CollectionName("base") + fileSuffix
	require.NoError(t, s.remove(name)) // as it goes on
	_, err = os.Stat(filepath.Join(dir, name))
	require.NoError(t, err)
	require.NoError(t, s.Close())

	s, err = Open(dir, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	ids, err := s.List(t.Context(), "base", 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, ids)
}
