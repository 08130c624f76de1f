package redisq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
)

func TestWhatRedisKeeps(t *testing.T) {
	t.Parallel()
	url := labserver.Private(t, labserver.KindRedis, labserver.Options{}).URL("0")
	r := newRig(t, url)
	for _, tt := range []struct{ appendOnly, fsync, want string }{
		{"yes", "always", "disk"}, {"yes", "everysec", "1s"}, {"yes", "no", "os"}, {"no", "always", "none"},
	} {
		r.do(t, "CONFIG", "SET", "appendonly", tt.appendOnly)
		r.do(t, "CONFIG", "SET", "appendfsync", tt.fsync)
		got, err := Keeps(t.Context(), r.raw, url)
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
	r.do(t, "CONFIG", "SET", "appendonly", "yes")
	for policy, want := range map[string]string{
		"allkeys-lru": "none (maxmemory-policy allkeys-lru evicts streams: set noeviction)", "volatile-lru": "os", // no stream has a time to live
	} {
		r.do(t, "CONFIG", "SET", "maxmemory-policy", policy, "appendfsync", "no")
		got, err := Keeps(t.Context(), r.raw, url)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for policy, want := range map[string]string{ // which a managed server says, but no more
		"allkeys-lru": "none (maxmemory-policy allkeys-lru evicts streams: set noeviction)", "noeviction": "unknown",
	} {
		r.do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		r.do(t, "ACL", "SETUSER", "default", "-config")
		got, err := Keeps(t.Context(), r.raw, url)
		require.NoError(t, err)
		require.Equal(t, want, got, policy)
		r.do(t, "ACL", "SETUSER", "default", "+config")
	}
}

func TestWhatTheEmbeddedRedisKeeps(t *testing.T) {
	t.Parallel()
	url := embeddedURL(t)
	got, err := Keeps(t.Context(), newTestClient(t, url), url)
	require.NoError(t, err)
	require.Equal(t, "none", got)
}

func TestAbsentRedisSaysNothing(t *testing.T) {
	t.Parallel()
	const url = "redis://127.0.0.1:1"
	_, err := Keeps(t.Context(), newTestClient(t, url), url)
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
}
