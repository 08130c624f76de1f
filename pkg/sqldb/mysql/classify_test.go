package mysql

import (
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/sqldb"
)

// What nodes of Galera and Group Replication return besides a server's own errors.
func TestErrorsOfNodesAreClassified(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]sqldb.Class{
		1213: sqldb.Retry, // Galera: another node's transaction came first
		3101: sqldb.Retry, // Group Replication: the same
		1047: sqldb.Lost,  // Galera: "WSREP has not yet prepared node for application use"
		3100: sqldb.Lost,  // Group Replication: the node has left its group
		1064: sqldb.Other,
	} {
		class, known := classify(&driver.MySQLError{Number: number})
		require.Equal(t, want, class, number)
		require.True(t, known)
	}
}
