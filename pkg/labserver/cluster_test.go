package labserver

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClusterServesAllSlots(t *testing.T) {
	t.Parallel()
	c := RedisCluster(t)
	require.Same(t, c, RedisCluster(t), "one cluster per process")
	require.Len(t, c.Addrs(), clusterMasters)
	served := 0
	for i := range 30 {
		key := "key-" + strconv.Itoa(i)
		here := 0
		for _, m := range c.Masters {
			answer, err := m.RedisCommand(t.Context(), "SET", key, "x")
			require.NoError(t, err)
			if answer == "+OK" {
				here++
				continue
			}
			require.True(t, strings.HasPrefix(answer, "-MOVED "), answer)
		}
		require.Equal(t, 1, here, key)
		served += here
	}
	require.Equal(t, 30, served)
}

func TestClusterReplicaIsPromotedWhenItsMasterIsDead(t *testing.T) {
	t.Parallel()
	c := PrivateCluster(t)
	ctx := t.Context()
	old := c.Masters[0]
	key := ""
	for i := 0; key == ""; i++ {
		answer, err := old.RedisCommand(ctx, "SET", "key-"+strconv.Itoa(i), "x")
		require.NoError(t, err)
		if answer == "+OK" {
			key = "key-" + strconv.Itoa(i)
		}
	}
	require.NoError(t, c.Synced(ctx))
	require.NoError(t, old.Kill(ctx))
	require.NoError(t, c.Promote(ctx))
	require.Same(t, old, c.Replica)
	length, err := c.Masters[0].RedisCommand(ctx, "STRLEN", key)
	require.NoError(t, err)
	require.Equal(t, ":1", length, "what was replicated is there")
	answer, err := c.Masters[0].RedisCommand(ctx, "SET", key, "y")
	require.NoError(t, err)
	require.Equal(t, "+OK", answer)

	require.NoError(t, old.Restart(ctx))
	require.Eventually(t, func() bool {
		info, err := old.redisInfo(ctx, "replication")
		return err == nil && strings.Contains(info, "role:slave")
	}, 3*time.Minute, 20*time.Millisecond, "the old master follows the new one")
}
