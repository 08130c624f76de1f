package sqldb_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

func TestBindPutsArgumentsInTheirPlaces(t *testing.T) {
	t.Parallel()
	q := sqldb.Queries{"A": "a = ? AND @part AND b = '?' AND c = ? OR @part", "B": "SELECT 1 WHERE mail = 'a@B'"}
	part := sqldb.Parts{"part": {Text: "p IN (?, ?)", Args: []any{1, 2}}}
	got := q.Bind("A", part, 0, 3)
	require.Equal(t, "a = ? AND p IN (?, ?) AND b = '?' AND c = ? OR p IN (?, ?)", got.Text)
	require.Equal(t, []any{0, 1, 2, 3, 1, 2}, got.Args)
	require.Equal(t, sqldb.Part{Text: "SELECT 1 WHERE mail = 'a@B'", Args: []any{}}, q.Bind("B", nil))
	require.Panics(t, func() { q.Bind("A", nil, 0, 3) }, "a part is missing")
	require.Panics(t, func() { q.Bind("A", part, 0, 3, 4) }, "an argument is left over")
	require.Panics(t, func() { q.Bind("A", part, 0) }, "an argument is missing")
}

func TestListsRepeatTheirLastValue(t *testing.T) {
	t.Parallel()
	require.Equal(t, sqldb.Part{Text: "?, ?, ?, ?", Args: []any{"a", "b", "c", "c"}}, sqldb.List([]string{"a", "b", "c"}))
	require.Equal(t, sqldb.Part{Text: "?", Args: []any{"none"}}, sqldb.List(nil, "none"))
	values := make([]int, 3, 4)
	require.Equal(t, []int{0, 0, 0, 0}, sqldb.Padded(values))
	require.Zero(t, values[:4][3], "the caller's slice stays as it is")
}

var numbered = regexp.MustCompile(`\$([0-9]+)`)

// Whatever the text: each placeholder outside of quotes gets the next number, and nothing else changes.
func FuzzRebindChangesPlaceholdersOnly(f *testing.F) {
	for _, query := range []string{"", "?", "a = ? AND b = '?' AND c = ?", "'", "''?''?", "'it''s ?' ?", "?'", "ü?é"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		require.Equal(t, query, sqldb.Rebind(sqldb.MySQL, query))
		if strings.Contains(query, "$") {
			return
		}
		got := sqldb.Rebind(sqldb.Postgres, query)
		for i, match := range numbered.FindAllStringSubmatch(got, -1) {
			if strings.ContainsAny(query, "0123456789") {
				break // a digit that follows a placeholder cannot be told from its number
			}
			require.Equal(t, strconv.Itoa(i+1), match[1])
		}
		outside := 0
		for i, part := range strings.Split(query, "'") {
			if i%2 == 0 {
				outside += strings.Count(part, "?")
			}
		}
		require.Equal(t, outside, strings.Count(got, "$"))
		if !strings.ContainsAny(query, "0123456789") {
			require.Equal(t, query, numbered.ReplaceAllString(got, "?"))
		}
	})
}
