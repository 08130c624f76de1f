package archtest

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// mysqlSQL are the files whose statements MySQL runs.
	mysqlSQL = regexp.MustCompile(`(^|/)mysql/[^/]*\.sql$|/(common|mysql)\.sql$`)
	// notNames are comments, texts, quoted names, and names behind a dot, which MySQL takes unquoted; arguments of macros are among them.
	notNames = regexp.MustCompile("--.*|'[^']*'|`[^`]*`|@name\\(\\w+\\)|\\.\\w+")
	// reserved are the words that MySQL 8.0 to 9.7, or MariaDB later than 10.11, reserve and MariaDB 10.11 does not (the manuals'
	// lists of reserved words). Our names are written in small letters, and the words of SQL in capitals.
	reserved = regexp.MustCompile(`\b(cube|cume_dist|dense_rank|empty|except|external|first_value|function|generated|get|grouping|groups|` +
		`io_after_gtids|io_before_gtids|json_table|lag|last_value|lateral|lead|library|manual|master_bind|nth_value|ntile|of|optimizer_costs|` +
		`parallel|percent_rank|qualify|rank|row|row_number|sets|stored|system|tablesample|vector|virtual|window)\b`)
)

// reservedIn are the names in a file of SQL that a server takes for words of its own.
func reservedIn(text string) []string {
	return reserved.FindAllString(notNames.ReplaceAllString(text, ""), -1)
}

// The tests run on a MariaDB that takes such names; `make test-mysql` runs them on MySQL.
func TestNoNameIsReserved(t *testing.T) {
	read := 0
	written(t, func(path string, text []byte) {
		if mysqlSQL.MatchString(path) {
			read++
			require.Empty(t, reservedIn(string(text)), path)
		}
	})
	require.Greater(t, read, 70)

	require.Equal(t, []string{"stored", "rank"}, reservedIn("SELECT stored, s.stored, `stored`, @name(stored), 'of', rank FROM t -- row"))
}
