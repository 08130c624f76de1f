package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

func TestDurabilityOfSettings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		commit, fsync, pages string
		want                 sqldb.Level
		weak                 string
	}{
		"all durable":       {"on", "on", "on", sqldb.LevelDisk, ""},
		"this disk only":    {"local", "on", "on", sqldb.LevelDisk, ""},
		"replicas too":      {"remote_apply", "on", "on", sqldb.LevelDisk, ""},
		"answered early":    {"off", "on", "on", sqldb.LevelNone, "synchronous_commit=off"},
		"never flushed":     {"on", "off", "on", sqldb.LevelNone, "fsync=off"},
		"pages can be torn": {"on", "on", "off", sqldb.LevelSecond, "full_page_writes=off"},
	} {
		got := durability(tt.commit, tt.fsync, tt.pages)
		require.Equal(t, tt.want, got.Level(), name)
		require.Equal(t, tt.weak, got.Weak().String(), name)
		for _, s := range got.Weak() {
			require.NotEmpty(t, s.Loses, name)
		}
	}
}
