package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

func TestDurabilityOfSettings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flush, logBin, sync string
		want                sqldb.Level
		weak                string
	}{
		"all durable":             {"1", "1", "1", sqldb.LevelDisk, ""},
		"no binary log":           {"1", "0", "0", sqldb.LevelDisk, ""},
		"MariaDB's three flushes": {"3", "0", "0", sqldb.LevelDisk, ""},
		"binary log not flushed":  {"1", "ON", "0", sqldb.LevelSecond, "sync_binlog=0"},
		"every tenth commit":      {"1", "1", "10", sqldb.LevelSecond, "sync_binlog=10"},
		"once a second":           {"2", "0", "0", sqldb.LevelSecond, "innodb_flush_log_at_trx_commit=2"},
		"in memory":               {"0", "1", "1", sqldb.LevelNone, "innodb_flush_log_at_trx_commit=0"},
	} {
		got := durability(tt.flush, tt.logBin, tt.sync)
		require.Equal(t, tt.want, got.Level(), name)
		require.Equal(t, tt.weak, got.Weak().String(), name)
		for _, s := range got.Weak() {
			require.NotEmpty(t, s.Loses, name)
		}
	}
}
