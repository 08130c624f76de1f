package taskstoretest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

func TestCopiesAreWhole(t *testing.T) {
	t.Parallel()
	open := func() *taskstore.Store {
		s, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: taskstoretest.SQLite(t)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	for _, s := range []*taskstore.Store{open(), open()} {
		applied, err := s.Migrate(t.Context())
		require.NoError(t, err)
		require.Empty(t, applied, "nothing is missing")
	}
}
