package redisq

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/ingestqtest"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

func TestConformsOnRedis(t *testing.T) {
	t.Parallel()
	ingestqtest.Run(t, ingestqtest.Features{Lag: true, DeadLetters: true, ForgetsGone: true},
		func(t *testing.T) ingestqtest.Bench { return newRig(t, labserver.RedisURL(t)).bench(t) })
}

func TestConformsOnCluster(t *testing.T) {
	t.Parallel()
	ingestqtest.Run(t, ingestqtest.Features{Lag: true, DeadLetters: true, ForgetsGone: true},
		func(t *testing.T) ingestqtest.Bench { return newClusterRig(t, labserver.RedisCluster(t)).bench(t) })
}

func TestConformsEmbedded(t *testing.T) {
	t.Parallel()
	ingestqtest.Run(t, ingestqtest.Features{DeadLetters: true},
		func(t *testing.T) ingestqtest.Bench { return newRig(t, embeddedURL(t)).bench(t) })
}

func embeddedURL(t testing.TB) string {
	t.Helper()
	url, stop, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(stop)
	return url
}

// rig is one Redis database with a client for the test's own hands.
type rig struct {
	cfg   Config
	raw   rueidis.Client
	queue func(func(*Config)) *Queue // another member; nil changes nothing
}

func newRig(t testing.TB, url string) *rig {
	t.Helper()
	r := &rig{cfg: NewDefaultConfig(url)}
	require.NoError(t, r.cfg.Validate())
	r.raw = newTestClient(t, url)
	r.queue = func(change func(*Config)) *Queue {
		cfg := r.cfg
		if change != nil {
			change(&cfg)
		}
		return New(newTestClient(t, url), cfg, slog.New(slog.DiscardHandler), time.Now, nil)
	}
	return r
}

// newClusterRig has keys of its own: tests share the cluster.
func newClusterRig(t testing.TB, c *labserver.Cluster) *rig {
	t.Helper()
	r := newRig(t, c.URL())
	r.cfg.StreamKey, r.cfg.DLQKey = rand.Text(), rand.Text()
	require.NoError(t, r.cfg.Validate())
	return r
}

func newTestClient(t testing.TB, url string) rueidis.Client {
	t.Helper()
	client, err := redisclient.New(url)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func (r *rig) do(t testing.TB, args ...string) rueidis.RedisMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	command := r.raw.B().Arbitrary(args...).Build()
	if len(args) > 1 {
		command = r.raw.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()
	}
	m, err := r.raw.Do(ctx, command).ToMessage()
	if !rueidis.IsRedisNil(err) {
		require.NoError(t, err, "%v", args)
	}
	return m
}

func (r *rig) bench(t *testing.T) ingestqtest.Bench {
	return ingestqtest.Bench{
		Member:  func() ingestq.PendingQueue { return r.queue(nil) },
		Locator: func() ingestq.Locator { return r.queue(nil) },
		DeadLetters: func() []map[string]string {
			entries, err := r.raw.Do(t.Context(), r.raw.B().Xrange().Key(r.cfg.DLQKey).Start("-").End("+").Build()).AsXRange()
			require.NoError(t, err)
			deadLetters := make([]map[string]string, len(entries))
			for i, e := range entries {
				deadLetters[i] = e.FieldValues
			}
			return deadLetters
		},
		AddRaw: func(fields map[string]string) string {
			args := []string{"XADD", r.cfg.StreamKey, "*"}
			for k, v := range fields {
				args = append(args, k, v)
			}
			m := r.do(t, args...)
			return stream.Text(m)
		},
		DeleteData: func(id string) { r.do(t, "XDEL", r.cfg.StreamKey, id) },
		Wipe: func() {
			if !isCluster(r.raw) {
				r.do(t, "FLUSHDB")
				return
			}
			r.do(t, "DEL", r.cfg.StreamKey)
			r.do(t, "DEL", r.cfg.DLQKey)
		},
		Kill: func(member ingestq.PendingQueue) { r.do(t, "DEL", r.queue(nil).aliveKey(member.Name())) },
		Clock: func() time.Time {
			command := r.raw.B().Time().Build()
			if isCluster(r.raw) {
				command = command.SetSlot(r.cfg.StreamKey)
			}
			parts, err := r.raw.Do(t.Context(), command).AsStrSlice()
			require.NoError(t, err)
			var sec, usec int64
			_, err = fmt.Sscan(parts[0]+" "+parts[1], &sec, &usec)
			require.NoError(t, err)
			return time.Unix(sec, usec*1000)
		},
		Probe: func(ctx context.Context) error { return r.raw.Do(ctx, r.raw.B().Ping().Build()).Error() },
	}
}
