package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstore/backend"
)

func TestDurabilityOfSettings(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct {
		level backend.Level
		text  string
	}{
		"3": {backend.LevelDisk, "synchronous=EXTRA"}, "2": {backend.LevelDisk, "synchronous=FULL"},
		"1": {backend.LevelSecond, "synchronous=NORMAL"}, "0": {backend.LevelNone, "synchronous=OFF"},
	} {
		got := durability(value)
		require.Equal(t, want.level, got.Level(), value)
		require.Equal(t, want.text, got.String())
	}
}
