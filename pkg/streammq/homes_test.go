package streammq

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
)

// home is a server, or several, that the suite runs on.
type home struct {
	name   string
	layout Layout
	// open answers the addresses and the database of a test.
	open  func(t testing.TB) (addrs []string, db int)
	addrs []string // those that open answered
	db    int
	resp2 bool
}

// homes are all of them; tests that need one only take the first of its layout.
var homes = []home{
	{name: "single", layout: LayoutSingle, open: oneRedis},
	{name: "tagged", layout: LayoutCluster, open: oneRedis},
	{name: "cluster", layout: LayoutCluster, open: func(t testing.TB) ([]string, int) { return labserver.RedisCluster(t).Addrs(), 0 }},
}

// emulatedRedis is the server of "millweir dev", in this process: one each, for its one lock is all that tests beside would wait for.
func emulatedRedis(t testing.TB) (addrs []string, db int) {
	address, stop, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(stop)
	u, err := url.Parse(address)
	require.NoError(t, err)
	return []string{u.Host}, 0
}

// emulated is a home for what it can; see emulator_test.go.
var emulated = home{name: "emulator", layout: LayoutSingle, resp2: true, open: emulatedRedis}

const databases = 4096 // one for each test that asks

var (
	databaseNumber atomic.Int64
	started        atomic.Pointer[labserver.Server]
)

// single is the one Redis of the suite. It does not know XAUTOCLAIM: what claims does so by XPENDING and XCLAIM.
var single = sync.OnceValues(func() (*labserver.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := labserver.Start(ctx, labserver.KindRedis, labserver.Options{
		Databases: databases, Args: []string{"--rename-command", "XAUTOCLAIM", ""},
	})
	started.Store(s)
	return s, err
})

func oneRedis(t testing.TB) (addrs []string, db int) {
	labserver.NeedServers(t)
	s, err := single()
	require.NoError(t, err)
	db = int(databaseNumber.Add(1))
	require.Less(t, db, databases)
	u, err := url.Parse(s.URL(strconv.Itoa(db)))
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(db), strings.TrimPrefix(u.Path, "/"))
	return []string{u.Host}, db
}

func endHomes() error {
	if s := started.Load(); s != nil {
		return s.Kill(context.Background())
	}
	return nil
}
