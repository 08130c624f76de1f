package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
	_ "github.com/millweir/millweir/pkg/sqldb/sqlite"
	"github.com/millweir/millweir/pkg/taskstate"
)

// opened is a migrated SQLite database of the test's own, with a table of three rows.
func opened(t *testing.T) *sqldb.Database {
	t.Helper()
	d, ok := sqldb.DriverOf("sqlite")
	require.True(t, ok)
	b, err := d.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "rows.db"), sqldb.PoolSize{}, nil)
	require.NoError(t, err)
	db := sqldb.New(b, time.Minute)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.Transact(t.Context(), func(ctx context.Context, tx taskstate.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE pairs (a TEXT, b TEXT, n INTEGER)")
		for i, p := range [][2]string{{"x", "1"}, {"x", "?"}, {"y", "'"}} {
			if err == nil {
				_, err = tx.ExecContext(ctx, "INSERT INTO pairs (a, b, n) VALUES (?, ?, ?)", p[0], p[1], i)
			}
		}
		return err
	}, nil))
	return db
}

func number(rows *sql.Rows) (n int, err error) { return n, rows.Scan(&n) }

func TestReadsReturnRows(t *testing.T) {
	t.Parallel()
	db := opened(t)
	ctx := t.Context()
	all, err := sqldb.ReadAll(ctx, db, "count", "SELECT n FROM pairs WHERE a = ? ORDER BY n", []any{"x"}, number)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, all)
	none, err := sqldb.ReadAll(ctx, db, "count", "SELECT n FROM pairs WHERE a = 'z'", nil, number)
	require.NoError(t, err)
	require.Empty(t, none)
	texts, err := sqldb.ReadTexts(ctx, db, "SELECT b FROM pairs ORDER BY n")
	require.NoError(t, err)
	require.Equal(t, []string{"1", "?", "'"}, texts)
	scan := func(row sqldb.Scanner) (b string, err error) { return b, row.Scan(&b) }
	one, err := sqldb.ReadRow(ctx, db, scan, "SELECT b FROM pairs WHERE n = ?", 2)
	require.NoError(t, err)
	require.Equal(t, "'", one)
	_, err = sqldb.ReadRow(ctx, db, scan, "SELECT b FROM pairs WHERE n = ?", 9)
	require.ErrorIs(t, err, sql.ErrNoRows)
}

// A read that is run again keeps nothing of the try before: here its connection dies after the rows were read.
func TestAReadThatRunsAgainReturnsEachRowOnce(t *testing.T) {
	t.Parallel()
	db := opened(t)
	tries := 0
	db.Watch = func(query string, done bool) error {
		if !done && strings.Contains(query, "FROM pairs") {
			tries++
		}
		return nil
	}
	got, err := sqldb.Read(t.Context(), db, func(ctx context.Context, tx taskstate.Tx) ([]string, error) {
		out, err := sqldb.Texts(ctx, tx, "SELECT b FROM pairs ORDER BY n")
		if err == nil && tries < 3 {
			err = driver.ErrBadConn
		}
		return out, err
	})
	require.NoError(t, err)
	require.Equal(t, 3, tries)
	require.Equal(t, []string{"1", "?", "'"}, got)
}

func TestReadsSayWhatTheyRead(t *testing.T) {
	t.Parallel()
	db := opened(t)
	ctx, broken := t.Context(), errors.New("broken")
	_, err := sqldb.ReadAll(ctx, db, "list pairs", "SELECT n FROM pairs", nil, func(*sql.Rows) (int, error) { return 0, broken })
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "list pairs: ")
	seen := 0
	err = sqldb.QueryRows(ctx, db.Reader(), "walk pairs", "SELECT n FROM pairs", nil, func(*sql.Rows) error { seen++; return broken })
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "walk pairs: ")
	require.Equal(t, 1, seen, "the first error ends the walk")
	require.ErrorContains(t, sqldb.QueryRows(ctx, db.Reader(), "walk", "SELECT n FROM nowhere", nil, nil), "walk: ")
	_, err = sqldb.ReadTexts(ctx, db, "SELECT NULL")
	require.ErrorContains(t, err, "read a column: ")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = sqldb.ReadTexts(ended, db, "SELECT b FROM pairs")
	require.ErrorIs(t, err, context.Canceled)
}

func TestPairArgsAreSortedAndPadded(t *testing.T) {
	t.Parallel()
	keys := map[sqldb.Pair]bool{{"b", "1"}: true, {"a", "2"}: false, {"a", ""}: true}
	require.Equal(t, []any{"a", "", "a", "2", "b", "1", "b", "1"}, sqldb.PairArgs(keys))
	require.Empty(t, sqldb.PairArgs(map[sqldb.Pair]int{}))
	require.Zero(t, sqldb.Pair{"a", "b"}.Compare(sqldb.Pair{"a", "b"}))
	require.Negative(t, sqldb.Pair{"a", "bc"}.Compare(sqldb.Pair{"ab", "c"}), "not the joined text counts")
	require.Equal(t, []int{1, 0}, []int{sqldb.Flag(true), sqldb.Flag(false)})
}

func TestTheClocksArithmeticRefusesWhatIsNoTime(t *testing.T) {
	t.Parallel()
	db := opened(t)
	read := func(query string, args ...any) (got sql.NullString, err error) {
		return got, db.Reader().QueryRowContext(t.Context(), query, args...).Scan(&got)
	}
	const at = "2030-01-01 00:00:00.000001"
	for query, want := range map[string]string{
		"SELECT mw_add('" + at + "', -1)":                              "2030-01-01 00:00:00.000000",
		"SELECT mw_diff('" + at + "', '2030-01-01 00:00:00.000000')":   "1",
		"SELECT mw_diff('2030-01-01 00:00:00.000000', '" + at + "')":   "-1",
		"SELECT mw_add('9999-12-31 00:00:00.000000', 0)":               "9999-12-31 00:00:00.000000",
		"SELECT mw_diff('" + at + "', mw_add('" + at + "', 86400000))": "-86400000",
	} {
		got, err := read(query)
		require.NoError(t, err, query)
		require.Equal(t, want, got.String, query)
	}
	for _, query := range []string{"SELECT mw_add(NULL, 1)", "SELECT mw_add(?, NULL)", "SELECT mw_diff(NULL, ?)", "SELECT mw_diff(?, NULL)"} {
		got, err := read(query, at)
		require.NoError(t, err, query)
		require.False(t, got.Valid, query)
	}
	for _, query := range []string{
		"SELECT mw_add('yesterday', 1)", "SELECT mw_add(5, 1)", "SELECT mw_add('" + at + "', 'soon')", "SELECT mw_add('" + at + "', 1.5)",
		"SELECT mw_diff('2030-01-01', '" + at + "')", "SELECT mw_diff('" + at + "', 7)", "SELECT mw_diff('" + at + "', '')",
	} {
		_, err := read(query)
		require.Error(t, err, query)
	}
}
