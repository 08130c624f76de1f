package sqldb

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/migrations"
)

// The text that is run names a collation that the server has, for every server; one that has none is told what to do.
func TestMigrationsTakeTheServersCollation(t *testing.T) {
	t.Parallel()
	all, err := migrations.Load("mysql")
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		known []string
		want  string
	}{
		"MariaDB 10.11": {[]string{"utf8mb4_nopad_bin"}, "utf8mb4_nopad_bin"},
		"MySQL 8":       {[]string{"utf8mb4_0900_bin"}, "utf8mb4_0900_bin"},
		"MariaDB 12":    {[]string{"utf8mb4_0900_bin", "utf8mb4_nopad_bin"}, "utf8mb4_nopad_bin"},
		"MySQL 5.7":     {nil, ""},
	} {
		asked := 0
		for _, m := range all {
			if !strings.Contains(m.Up, "@nopad") {
				continue
			}
			asked++
			got, err := withCollation(m.Up, tt.known)
			if tt.want == "" {
				require.ErrorIs(t, err, ErrNoCollation, name)
				require.ErrorContains(t, err, "MySQL 8.0.17")
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, strings.Count(m.Up, "COLLATE @nopad"), strings.Count(got, "COLLATE "+tt.want), "%s: %s", name, m.Name)
			for _, s := range migrations.Statements(got) {
				require.NotContains(t, s, noPad, name)
				if n := strings.Count(s, "MODIFY "); n > 0 { // each column of a table, and the table itself
					require.Equal(t, n+1, strings.Count(s, "COLLATE "+tt.want), "%s: %s", name, s)
				}
			}
		}
		require.Positive(t, asked)
	}
}
