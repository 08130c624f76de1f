package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestAFileIsReplacedWithoutHardLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := Open(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, files.Close()) }()
	old, good := ingest.NewID(), ingest.NewID()
	require.NoError(t, os.WriteFile(filepath.Join(dir, old), []byte("old"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, good), []byte("good"), 0o600))
	reader, err := files.Open(old)
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	temp := TempPrefix + ingest.NewID()
	require.NoError(t, files.duplicate(good, temp))
	require.NoError(t, files.Replace(t.Context(), old, good))
	require.NoError(t, files.Replace(t.Context(), old, good), "once more: two names of one file")
	for _, name := range []string{old, good, temp} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, "good", string(text))
	}
	before := make([]byte, 3)
	_, err = reader.Read(before)
	require.NoError(t, err)
	require.Equal(t, "old", string(before), "an open file stays what it was")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3)
}
