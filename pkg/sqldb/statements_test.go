package sqldb

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestDialectFileReplacesCommonByName(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{
		"common.sql": {Data: []byte("-- name: A\nSELECT @now\n@forupdate;\n-- why\n-- name: B\nSELECT 1 WHERE id IN (@list)\n")},
		"sqlite.sql": {Data: []byte("-- name: B\nSELECT 2 WHERE id IN (@list)\n")},
	}
	q, err := Load(fsys, SQLite)
	require.NoError(t, err)
	require.Equal(t, "SELECT mw_now()", trim(q.Get("A")))
	require.Equal(t, "SELECT 2 WHERE id IN (?, ?)", q.List("B", 2))
	m, err := Load(fsys, MySQL)
	require.NoError(t, err)
	require.Equal(t, "SELECT NOW(6)\nFOR UPDATE", trim(m.Get("A")))
	require.Panics(t, func() { q.Get("C") })
	_, err = Load(fstest.MapFS{}, MySQL)
	require.Error(t, err)
}

func TestNameTwiceIsRefused(t *testing.T) {
	t.Parallel()
	_, err := Load(fstest.MapFS{"common.sql": {Data: []byte("-- name: A\nx\n-- name: A\ny\n")}}, MySQL)
	require.ErrorContains(t, err, "A stands twice")
}

func TestRows(t *testing.T) {
	t.Parallel()
	q := Queries{"I": "INSERT INTO t VALUES (@rows:3)", "N": "SELECT 1", "X": "(@rows:x)"}
	require.Equal(t, "INSERT INTO t VALUES (?, ?, ?), (?, ?, ?)", q.Rows("I", 2))
	require.Panics(t, func() { q.Rows("N", 1) })
	require.Panics(t, func() { q.Rows("X", 1) })
}

func TestAny(t *testing.T) {
	t.Parallel()
	q := Queries{"A": "SELECT 1 WHERE (@any a = ? AND b = ?) UNION ALL SELECT 2 WHERE (@any c = ?)", "N": "SELECT 1"}
	require.Equal(t, "SELECT 1 WHERE ((a = ? AND b = ?) OR (a = ? AND b = ?)) UNION ALL SELECT 2 WHERE ((c = ?))", q.Any("A", 2, 1))
	require.Panics(t, func() { q.Any("N", 1) })
}

func TestRebind(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a=$1 AND b='?' AND c=$2", Rebind(Postgres, "a=? AND b='?' AND c=?"))
	require.Equal(t, "a=?", Rebind(MySQL, "a=?"))
}

func trim(s string) string {
	for len(s) > 0 && (s[len(s)-1] == '\n' || s[len(s)-1] == ' ') {
		s = s[:len(s)-1]
	}
	return s
}
