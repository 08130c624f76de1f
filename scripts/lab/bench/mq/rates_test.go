package mq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq"
)

func TestSharesAreEven(t *testing.T) {
	t.Parallel()
	require.True(t, even([]string{"a", "b", "a"}, 2))
	require.False(t, even([]string{"a", "b", "b", "b"}, 2), "1 and 3")
	require.False(t, even([]string{"a", "b", ""}, 2), "one is free")
	require.False(t, even([]string{"a", "b"}, 3), "one has none")
}

// The rates are of what they say: everything published by either way is consumed by either way.
// Not parallel: the process's allocations are counted.
func TestTheQueueAndTheRawCommandsDoTheSame(t *testing.T) {
	server := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	client, err := mqClient(server.Addr)
	require.NoError(t, err)
	defer client.Close()
	q, err := streammq.New(client, streammq.NewDefaultConfig())
	require.NoError(t, err)
	r := &mqRig{server: server, client: client, mq: q}
	require.NoError(t, r.fresh(t.Context(), 1, false))
	require.NoError(t, r.rawPublish(t.Context()))
	cost, _, err := r.counted(t.Context(), r.consume)
	require.NoError(t, err)
	require.LessOrEqual(t, cost.allocations, 35.0, "allocations for a consumed message: 18 are its fields, as the client reads them")
	require.NoError(t, r.rawConsume(t.Context()))
	for _, group := range []string{"raw", mqGroup} {
		stats, err := r.mq.GroupStats(t.Context(), mqTopic, group)
		require.NoError(t, err)
		require.EqualValues(t, mqMessages, stats[0].Length)
		require.Zero(t, stats[0].Lag+stats[0].Pending, "group %s", group)
	}
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
