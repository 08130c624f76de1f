package taskstoretest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

func TestCopiesAreWholeAndApart(t *testing.T) {
	t.Parallel()
	open := func() *taskstore.Store {
		s, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	var epochs []int64
	for _, s := range []*taskstore.Store{open(), open()} {
		applied, err := s.Migrate(t.Context())
		require.NoError(t, err)
		require.Empty(t, applied, "nothing is missing")
		var epoch int64
		require.NoError(t, s.Reader().QueryRowContext(t.Context(), "SELECT value FROM timeline").Scan(&epoch))
		epochs = append(epochs, epoch)
	}
	require.NotEqual(t, epochs[0], epochs[1], "each is a database of its own")
}
