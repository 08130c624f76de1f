package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/scripts/peers/stage"
)

func TestChoosing(t *testing.T) {
	t.Parallel()
	relays := matching("relay")
	require.Len(t, relays, 3)
	queues := matching("streammq")
	require.Len(t, queues, 3)
	require.Len(t, matching(""), len(roster)-len(relays)-len(queues)-1, "relays, queues and SQLite are left out unless they are named")
	require.Empty(t, matching("nobody"))
	chosen := matching("river,millweir-always")
	require.Len(t, chosen, 2)
	require.Equal(t, []stage.Server{stage.Postgres, stage.MariaDB, stage.RedisAlways}, servers(chosen))
	require.Equal(t, stage.RedisAlways, chosen[1].redis())
	require.Empty(t, chosen[0].redis())
	require.Len(t, chosen[0].phases(true), 5)
	require.Len(t, chosen[0].phases(false), 3)
}
