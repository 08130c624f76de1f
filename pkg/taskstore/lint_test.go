package taskstore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/migrations"
)

// notCommon is what only one of MySQL and MariaDB knows; statements for both must do without.
var notCommon = map[string]*regexp.Regexp{
	"-> and ->> (MariaDB has none)":                     regexp.MustCompile(`->`),
	"a row alias of INSERT (MySQL only)":                regexp.MustCompile(`(?is)VALUES[^;]*\)\s+AS\s+\w+\s+ON\s+DUPLICATE`),
	"FOR SHARE (MySQL only)":                            regexp.MustCompile(`(?i)\bFOR\s+SHARE\b`),
	"FOR UPDATE OF (MySQL only)":                        regexp.MustCompile(`(?i)\bFOR\s+UPDATE\s+OF\b`),
	"functional index (MySQL only)":                     regexp.MustCompile(`(?i)\b(KEY|INDEX)\s+\w*\s*\(\s*\(`),
	"invisible index (MySQL only)":                      regexp.MustCompile(`(?i)\bINVISIBLE\b`),
	"UUID_TO_BIN (MySQL only)":                          regexp.MustCompile(`(?i)\b(UUID_TO_BIN|BIN_TO_UUID)\b`),
	"utf8mb4_0900 collation (MySQL only)":               regexp.MustCompile(`(?i)utf8mb4_0900`),
	"@@transaction_isolation (MySQL only)":              regexp.MustCompile(`(?i)\btransaction_isolation\b`),
	"@@tx_isolation (MariaDB only)":                     regexp.MustCompile(`(?i)\btx_isolation\b`),
	"EXPLAIN ANALYZE (MySQL only)":                      regexp.MustCompile(`(?i)\bEXPLAIN\s+ANALYZE\b`),
	"VALUES ROW(…) (MySQL only)":                        regexp.MustCompile(`(?i)\bVALUES\s+ROW\s*\(`),
	"RETURNING (MariaDB only)":                          regexp.MustCompile(`(?i)\bRETURNING\b`),
	"IF NOT EXISTS for columns, indexes (MariaDB only)": regexp.MustCompile(`(?i)\b(COLUMN|INDEX|KEY)\s+IF\s+(NOT\s+)?EXISTS\b`),
	"sequences (MariaDB only)":                          regexp.MustCompile(`(?i)\b(NEXTVAL|CREATE\s+SEQUENCE|seq_\d+_to_\d+)\b`),
	"|| for text (an OR on both)":                       regexp.MustCompile(`\|\|`),
}

// violations names what of a text not both servers know.
func violations(text string) []string {
	var code strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			code.WriteString(line)
		}
	}
	var out []string
	for name, pattern := range notCommon {
		if pattern.MatchString(code.String()) {
			out = append(out, name)
		}
	}
	return out
}

func TestSQLStaysInTheCommonSubset(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "go.work"))
	looked := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "data" || name == "bin") {
			return filepath.SkipDir
		}
		mysql := name == "common.sql" || name == "mysql.sql" || filepath.Base(filepath.Dir(path)) == "mysql"
		if d.IsDir() || !mysql || filepath.Ext(name) != ".sql" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		looked++
		rel, _ := filepath.Rel(root, path)
		for _, v := range violations(string(text)) {
			t.Errorf("%s uses %s", rel, v)
		}
		return nil
	})
	require.NoError(t, err)
	known, err := migrations.Load("mysql")
	require.NoError(t, err)
	require.GreaterOrEqual(t, looked, 2+2*len(known), "files")
}

func TestLintFindsEachViolation(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"->":             "SELECT a->>'$.b' FROM t",
		"row alias":      "INSERT INTO t VALUES (1) AS n ON DUPLICATE KEY UPDATE a = n.a",
		"FOR SHARE":      "SELECT 1 FROM t FOR SHARE",
		"UPDATE OF":      "SELECT 1 FROM t FOR UPDATE OF t",
		"functional":     "CREATE TABLE t (a INT, KEY k ((a + 1)))",
		"invisible":      "CREATE TABLE t (a INT, KEY k (a) INVISIBLE)",
		"UUID_TO_BIN":    "SELECT UUID_TO_BIN(a)",
		"utf8mb4_0900":   "CREATE TABLE t (a TEXT COLLATE utf8mb4_0900_ai_ci)",
		"@@transaction_": "SELECT @@transaction_isolation",
		"@@tx_isolation": "SELECT @@tx_isolation",
		"EXPLAIN":        "EXPLAIN ANALYZE SELECT 1",
		"VALUES ROW":     "VALUES ROW(1, 2)",
		"RETURNING":      "DELETE FROM t RETURNING a",
		"IF NOT EXISTS":  "ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT",
		"sequences":      "SELECT NEXTVAL(s)",
		"||":             "SELECT a || b",
	} {
		found := violations(text)
		require.Len(t, found, 1, "%s: %v", name, found)
	}
	require.Empty(t, violations("-- RETURNING is for MariaDB\nCREATE TABLE IF NOT EXISTS t (a INT);\nSELECT 1 FROM t FOR UPDATE SKIP LOCKED"))
}
