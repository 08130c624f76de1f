package postgres

import (
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

// A pooler, such as PgBouncer, refuses a connection that begins with settings which it does not know. What the address itself has is sent
// as it is.
func TestAConnectionBeginsWithWhatAPoolerTakes(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][]string{"": {"database", "user"}, "&jit=on": {"database", "jit", "user"}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close() //nolint:errcheck // the test is over
		b, err := open(t.Context(), "postgres://u:p@"+l.Addr().String()+"/d?sslmode=disable"+query, sqldb.PoolSize{Silence: time.Second}, time.Now)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- b.DB.PingContext(t.Context()) }()
		conn, err := l.Accept()
		require.NoError(t, err)
		first, err := pgproto3.NewBackend(conn, conn).ReceiveStartupMessage()
		require.NoError(t, err)
		require.Subset(t, append(want, "client_encoding", "min_protocol_version"), slices.Collect(maps.Keys(first.(*pgproto3.StartupMessage).Parameters)))
		require.NoError(t, l.Close())
		require.NoError(t, conn.Close())
		require.Error(t, <-done)
		require.NoError(t, b.DB.Close())
	}
}

// What a pooler does that hands out a session for each transaction is a fault of the installation: the database is away.
func TestAPoolerOfTransactionsIsAFault(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"26000", "42P05"} {
		class, known := classify(&pgconn.PgError{Code: code})
		require.Equal(t, sqldb.Lost, class)
		require.True(t, known)
	}
}
