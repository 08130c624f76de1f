package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq/embedded"
)

// Topics are made by name alone, never by a client that asks for one.
func TestItServesTheTopicsThatWereMade(t *testing.T) {
	t.Parallel()
	b, err := embedded.Start()
	require.NoError(t, err)
	defer b.Stop()
	require.NoError(t, b.Topic("tasks", 3))
	require.ErrorContains(t, b.Topic("tasks", 3), "make topic tasks")
	for topic, partitions := range map[string]int{"tasks": 3, "others": 0} {
		cfg := kafkaq.NewDefaultConfig(b.Bootstrap())
		cfg.Topic = topic
		c, err := kafkaq.NewClient(cfg)
		require.NoError(t, err)
		got, err := c.Partitions(t.Context(), topic)
		require.Len(t, got, partitions)
		require.Equal(t, partitions == 0, err != nil)
		require.NoError(t, c.Close())
	}
	b.Stop()
	b.Stop()
}
