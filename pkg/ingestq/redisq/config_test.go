package redisq

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
)

func TestConfigNamesEachBadSetting(t *testing.T) {
	t.Parallel()
	require.NoError(t, NewDefaultConfig("redis://h").Validate())
	cfg := NewDefaultConfig("redis://h")
	cfg.DLQKey, cfg.ZombieMinIdle = "", 0
	require.NoError(t, cfg.Validate(), "an empty dead letter key and idle times of 0 are allowed")
	err := Config{URL: "x", DLQKey: "k", ZombieMaxPending: -1, ZombieMinIdle: -time.Second}.Validate()
	for _, name := range []string{
		"REDIS_URL", "INGEST_STREAM_KEY", "INGEST_STREAM_GROUP", "heartbeat TTL",
		"ZOMBIE_MAX_PENDING", "ZOMBIE_MIN_IDLE_MS", "ZOMBIE_INTERVAL_MS",
	} {
		require.ErrorContains(t, err, name)
	}
	braces := NewDefaultConfig("redis-cluster://h")
	braces.StreamKey, braces.DLQKey = "{ingest}:tasks", "{ingest:dlq"
	require.ErrorContains(t, braces.Validate(), "INGEST_REDIS_DLQ_STREAM_KEY")
	require.NotContains(t, braces.Validate().Error(), "INGEST_STREAM_KEY")
	braces.URL = "redis://h"
	require.NoError(t, braces.Validate(), "one Redis has no slots")
	cfg.DLQKey = cfg.StreamKey
	require.ErrorContains(t, cfg.Validate(), "INGEST_REDIS_DLQ_STREAM_KEY")
}

func TestMemberNamesAreUnique(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, ingestq.MemberName(), ingestq.MemberName())
	require.Len(t, strings.Fields(ingestq.MemberName()), 1)
}

func TestWhatIsNoIDIsLeftOut(t *testing.T) {
	t.Parallel()
	require.Empty(t, idBatches(make([]string, 5)))
}
