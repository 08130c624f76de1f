package sqldb_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

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

func TestMacrosOfEachDialect(t *testing.T) {
	t.Parallel()
	load := func(d sqldb.Dialect, text string) (sqldb.Queries, error) {
		return sqldb.Load(fstest.MapFS{"common.sql": {Data: []byte("-- name: N\n60\n-- name: A\n" + text)}}, d)
	}
	for d, want := range map[sqldb.Dialect]string{
		sqldb.MySQL:    "(NOW(6) + INTERVAL (1 + 60) MICROSECOND) FORCE INDEX (i) @part",
		sqldb.Postgres: "(statement_timestamp() + CAST((1 + 60) AS bigint) * INTERVAL '1 microsecond')  @part",
		sqldb.SQLite:   "mw_add(mw_now(), (1 + 60))  @part",
	} {
		q, err := load(d, "@in((1 + @include(N))) @force(i) @part")
		require.NoError(t, err)
		require.Equal(t, want, q.Get("A"))
	}
	q, err := load(sqldb.SQLite, "SELECT c.a FROM @json(a text, b bigint)")
	require.NoError(t, err)
	require.Equal(t, "SELECT c.a FROM (SELECT value ->> 'a' AS a, value ->> 'b' AS b FROM json_each(?)) AS c", q.Get("A"))
	q, err = load(sqldb.Postgres, "SELECT c.a FROM @json(a text, b bigint)")
	require.NoError(t, err)
	require.Equal(t, "SELECT c.a FROM json_to_recordset(CAST(? AS json)) AS c (a text, b bigint)", q.Get("A"))
	for text, problem := range map[string]string{
		"@in":               "statement A: @in has no argument",
		"@in 5":             "statement A: @in has no argument",
		"@in((5)":           "statement A: @in has no argument",
		"@force":            "statement A: @force has no argument",
		"@include(Missing)": "statement A: @include: no statement Missing",
		"@in(@include())":   "statement A: @include: no statement ",
		"@json(a text)":     "statement A: @json is not for mysql",
	} {
		_, err := load(sqldb.MySQL, text)
		require.EqualError(t, err, problem, text)
	}
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
