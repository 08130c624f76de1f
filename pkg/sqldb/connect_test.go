package sqldb_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

// dumb is a connection that can be closed and nothing else.
type dumb struct{ closed int }

func (*dumb) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (*dumb) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *dumb) Close() error                      { c.closed++; return nil }

// able is one that runs statements; it fails at the one that it is told.
type able struct {
	dumb
	ran    []string
	failAt string
}

var errStatement = errors.New("statement refused")

func (c *able) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if query == c.failAt {
		return nil, errStatement
	}
	c.ran = append(c.ran, query)
	return driver.ResultNoRows, nil
}

// giver is a connector that gives one connection.
type giver struct {
	conn driver.Conn
	err  error
}

func (g giver) Connect(context.Context) (driver.Conn, error) { return g.conn, g.err }
func (giver) Driver() driver.Driver                          { return nil }

func TestANewConnectionIsSetUpOrClosed(t *testing.T) {
	t.Parallel()
	good := &able{}
	conn, err := sqldb.SetUp(sqldb.SetUp(giver{conn: good}, "a", "b"), "c").Connect(t.Context())
	require.NoError(t, err)
	require.Same(t, good, conn)
	require.Equal(t, []string{"a", "b", "c"}, good.ran, "the inner ones come first")
	require.Zero(t, good.closed)

	bad := &able{failAt: "b"}
	_, err = sqldb.SetUp(giver{conn: bad}, "a", "b", "c").Connect(t.Context())
	require.ErrorIs(t, err, errStatement)
	require.Equal(t, []string{"a"}, bad.ran)
	require.Equal(t, 1, bad.closed)

	mute := &dumb{}
	_, err = sqldb.SetUp(giver{conn: mute}, "a").Connect(t.Context())
	require.ErrorContains(t, err, "cannot run statements")
	require.Equal(t, 1, mute.closed)

	_, err = sqldb.SetUp(giver{err: driver.ErrBadConn}, "a").Connect(t.Context())
	require.ErrorIs(t, err, driver.ErrBadConn)
}

func TestAnUnsafeServerGetsNoConnection(t *testing.T) {
	t.Parallel()
	weak := func(l sqldb.Level) sqldb.Durability {
		return sqldb.Durability{{Name: "kept", Value: "on", Level: sqldb.LevelDisk}, {Name: "flush", Value: "0", Level: l, Want: "1", Loses: "uploads"}}
	}
	for level, refused := range map[sqldb.Level]bool{
		sqldb.LevelDisk: false, sqldb.LevelSecond: false, sqldb.LevelUnknown: false, sqldb.LevelNone: true,
	} {
		conn := &dumb{}
		got, err := sqldb.Guard(giver{conn: conn}, func(_ context.Context, c driver.Conn) (sqldb.Durability, error) {
			require.Same(t, conn, c)
			return weak(level), nil
		}).Connect(t.Context())
		if !refused {
			require.NoError(t, err, level)
			require.Same(t, conn, got)
			require.Zero(t, conn.closed, level)
			continue
		}
		var unsafe *sqldb.UnsafeError
		require.ErrorAs(t, err, &unsafe)
		require.ErrorContains(t, err, "flush=0: uploads; set flush=1, or ALLOW_UNSAFE_DURABILITY=true")
		require.NotContains(t, err.Error(), "kept", "only what is at fault is named")
		require.Equal(t, 1, conn.closed)
	}
	conn := &dumb{}
	_, err := sqldb.Guard(giver{conn: conn}, func(context.Context, driver.Conn) (sqldb.Durability, error) {
		return nil, errStatement
	}).Connect(t.Context())
	require.ErrorIs(t, err, errStatement, "a server that cannot be asked is not used")
	require.Equal(t, 1, conn.closed)
}

func TestALoginIsCutOutOfMessages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ address, message, want string }{
		{"postgres://me:s3cret@host/db", `cannot parse "postgres://me:s3cret@host/db"`, `cannot parse "postgres://***:***@host/db"`},
		{"me:s3/cr@et@tcp(host:3306)/db", `port "s3" of "cr" and "et"`, `port "***" of "***" and "***"`},
		{"postgres://me:pass:word?x=yes&no@host", `near "pass", "word" and "yes"`, `near "***", "***" and "***"`},
		{"mysql://only@host", `"only" has no password`, `"***" has no password`},
		{"postgres://host/db", "no login is hidden: host", "no login is hidden: host"},
	} {
		require.Equal(t, tt.want, sqldb.HideLogin(tt.message, tt.address), tt.address)
	}
}
