package pgvector_test

import (
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/vector/pgvector"
)

// A pooler, such as PgBouncer, refuses a connection that begins with settings which it does not know.
func TestAConnectionBeginsWithWhatAPoolerTakes(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // the test is over
	s, err := pgvector.New(pgvector.Config{URL: "postgres://u:p@" + l.Addr().String() + "/d?sslmode=disable", Timeout: time.Minute})
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // nothing is under way
	done := make(chan error, 1)
	go func() { done <- s.Ping(t.Context()) }()
	conn, err := l.Accept()
	require.NoError(t, err)
	first, err := pgproto3.NewBackend(conn, conn).ReceiveStartupMessage()
	require.NoError(t, err)
	require.IsType(t, &pgproto3.StartupMessage{}, first)
	require.Subset(t, []string{"database", "user", "client_encoding"}, slices.Collect(maps.Keys(first.(*pgproto3.StartupMessage).Parameters)))
	require.NoError(t, l.Close())
	require.NoError(t, conn.Close())
	require.Error(t, <-done)
}
