package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

func TestDurabilityOfSettings(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct {
		level sqldb.Level
		text  string
	}{
		"3": {sqldb.LevelDisk, "synchronous=EXTRA"}, "2": {sqldb.LevelDisk, "synchronous=FULL"},
		"1": {sqldb.LevelSecond, "synchronous=NORMAL"}, "0": {sqldb.LevelNone, "synchronous=OFF"},
	} {
		got := durability(value)
		require.Equal(t, want.level, got.Level(), value)
		require.Equal(t, want.text, got.String())
	}
}
