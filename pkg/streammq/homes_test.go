package streammq

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/redistest"
)

// home is a server, or several, that the suite runs on.
type home struct {
	name   string
	layout Layout
	// open returns the addresses and the database of a test.
	open  func(t testing.TB) (addrs []string, db int)
	addrs []string // those that open answered
	db    int
	resp2 bool
}

// homes are all of them; tests that need one only take the first of its layout.
var homes = []home{
	{name: "single", layout: LayoutSingle, open: oneRedis},
	{name: "tagged", layout: LayoutCluster, open: oneRedis},
	{name: "cluster", layout: LayoutCluster, open: func(t testing.TB) ([]string, int) { return redistest.RedisCluster(t).Addrs(), 0 }},
}

// emulatedRedis is the server of "millweir dev": one each, for its one lock is all that tests beside would wait for.
func emulatedRedis(t testing.TB) (addrs []string, db int) {
	return []string{redistest.Emulator(t)}, 0
}

// emulated is a home for what it can; see emulator_test.go.
var emulated = home{name: "emulator", layout: LayoutSingle, resp2: true, open: emulatedRedis}

const databases = 4096 // one for each test that asks

var databaseNumber atomic.Int64

// single is the one Redis of the suite. It does not know XAUTOCLAIM: what claims does so by XPENDING and XCLAIM.
var single = sync.OnceValues(func() (*redistest.Server, error) {
	return redistest.Start(context.Background(), redistest.Options{
		Databases: databases, Args: []string{"--rename-command", "XAUTOCLAIM", ""},
	})
})

func oneRedis(t testing.TB) (addrs []string, db int) {
	redistest.NeedServers(t)
	s, err := single()
	require.NoError(t, err)
	db = int(databaseNumber.Add(1))
	require.Less(t, db, databases)
	return []string{s.Addr}, db
}
