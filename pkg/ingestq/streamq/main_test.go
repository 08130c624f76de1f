package streamq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/ingestqtest"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/streammq"
	pb "github.com/millweir/millweir/proto"
)

const waitLimit = 2 * time.Minute // of a wait for something that must come

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

func TestConforms(t *testing.T) {
	t.Parallel()
	ingestqtest.Run(t, ingestqtest.Features{Lag: true, DeadLetters: true, ForgetsGone: true},
		func(t *testing.T) ingestqtest.Bench { return newRig(t, 1).bench() })
}

func TestConformsOnCluster(t *testing.T) {
	t.Parallel()
	clusters := newClusters(t)
	ingestqtest.Run(t, ingestqtest.Features{Lag: true, DeadLetters: true, ForgetsGone: true},
		func(t *testing.T) ingestqtest.Bench { return newClusterRig(t, clusters.take(t), 1).bench() })
}

// clusters are empty Redis Clusters, one for each test that runs now: the topic's name is the same for all. They end with the
// test that made them.
type clusters struct {
	t    testing.TB
	mu   sync.Mutex
	free []*labserver.Cluster
}

func newClusters(t testing.TB) *clusters { return &clusters{t: t} }

func (c *clusters) take(t testing.TB) *labserver.Cluster {
	t.Helper()
	labserver.NeedServers(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	var one *labserver.Cluster
	if n := len(c.free); n > 0 {
		one, c.free = c.free[n-1], c.free[:n-1]
	} else {
		var err error
		one, err = labserver.StartCluster(context.WithoutCancel(t.Context()), false)
		require.NoError(t, err)
		c.t.Cleanup(func() { require.NoError(c.t, one.Kill(context.Background())) })
	}
	t.Cleanup(func() {
		flush(t, one)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.free = append(c.free, one)
	})
	return one
}

func flush(t testing.TB, c *labserver.Cluster) {
	t.Helper()
	for _, m := range c.Masters {
		answer, err := m.RedisCommand(context.WithoutCancel(t.Context()), "FLUSHALL")
		require.NoError(t, err)
		require.Equal(t, "+OK", answer)
	}
}

func newClusterRig(t testing.TB, c *labserver.Cluster, partitions int) *rig {
	t.Helper()
	r := &rig{t: t, cfg: Config{Config: redisq.NewDefaultConfig(c.URL()), Partitions: partitions}, cluster: c}
	require.NoError(t, r.cfg.Validate())
	r.raw = r.client()
	return r
}

func TestConformsEmbedded(t *testing.T) {
	t.Parallel()
	ingestqtest.Run(t, ingestqtest.Features{DeadLetters: true}, func(t *testing.T) ingestqtest.Bench {
		url, stop, err := embedded.Start()
		require.NoError(t, err)
		t.Cleanup(stop)
		r := &rig{t: t, cfg: Config{Config: redisq.NewDefaultConfig(url), Partitions: 1}}
		r.raw = r.client()
		return r.bench()
	})
}

// rig is one Redis database with a client for the test's own hands.
type rig struct {
	t   testing.TB
	cfg Config
	raw rueidis.Client

	cluster *labserver.Cluster // nil: one Redis
}

func newRig(t testing.TB, partitions int) *rig {
	t.Helper()
	url := labserver.RedisURL(t)
	r := &rig{t: t, cfg: Config{Config: redisq.NewDefaultConfig(url), Partitions: partitions}}
	require.NoError(t, r.cfg.Validate())
	r.raw = r.client()
	return r
}

func (r *rig) client() rueidis.Client {
	r.t.Helper()
	client, err := redisclient.New(r.cfg.URL)
	require.NoError(r.t, err)
	r.t.Cleanup(client.Close)
	return client
}

// member is another member of the group; change may be nil.
func (r *rig) member(change func(*Config)) *Queue {
	r.t.Helper()
	cfg := r.cfg
	if change != nil {
		change(&cfg)
	}
	q, err := New(r.client(), cfg, slog.New(slog.DiscardHandler), time.Now, nil)
	require.NoError(r.t, err)
	r.t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(r.t, q.Run(ended))
	})
	return q
}

// single is a member of the group of the single stream.
func (r *rig) single() *redisq.Queue {
	return redisq.New(r.client(), r.cfg.Config, slog.New(slog.DiscardHandler), time.Now, nil)
}

func (r *rig) do(args ...string) rueidis.RedisMessage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	command := r.raw.B().Arbitrary(args...).Build()
	if len(args) > 1 {
		command = r.raw.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()
	}
	m, err := r.raw.Do(ctx, command).ToMessage()
	if !rueidis.IsRedisNil(err) {
		require.NoError(r.t, err, "%v", args)
	}
	return m
}

func (r *rig) deadLetters() []map[string]string {
	r.t.Helper()
	m := r.do("XRANGE", r.cfg.DLQKey, "-", "+")
	entries, err := m.AsXRange()
	require.NoError(r.t, err)
	deadLetters := make([]map[string]string, len(entries))
	for i, e := range entries {
		deadLetters[i] = e.FieldValues
	}
	return deadLetters
}

func (r *rig) bench() ingestqtest.Bench {
	return ingestqtest.Bench{
		Member: func() ingestq.PendingQueue { return r.member(nil) },
		Locator: func() ingestq.Locator {
			p, err := NewPublisher(r.client(), r.cfg, slog.New(slog.DiscardHandler), time.Now, nil)
			require.NoError(r.t, err)
			return p
		},
		DeadLetters: func() []map[string]string {
			deadLetters := r.deadLetters()
			for _, l := range deadLetters { // the stream is named beside it
				if l["sourceStream"] == streammq.StreamKey(Topic, 0) {
					l["sourceRecordId"] = idOf(0, l["sourceRecordId"])
				}
			}
			return deadLetters
		},
		AddRaw: func(fields map[string]string) string {
			args := []string{"XADD", streammq.StreamKey(Topic, 0), "*"}
			for k, v := range fields {
				args = append(args, k, v)
			}
			m := r.do(args...)
			id, err := m.ToString()
			require.NoError(r.t, err)
			return idOf(0, id)
		},
		DeleteData: func(id string) {
			partition, entry, _ := splitID(id)
			r.do("XDEL", streammq.StreamKey(Topic, partition), entry)
		},
		Wipe: func() {
			if r.cluster != nil {
				flush(r.t, r.cluster)
				return
			}
			r.do("FLUSHDB")
		},
		Kill: func(member ingestq.PendingQueue) {
			begin := beats
			if r.cluster != nil {
				begin = "{" + streammq.StreamKey(Topic, 0) + "}"
			}
			r.do("DEL", begin+":alive:"+r.cfg.Group+":"+member.Name())
		},
		Rest: func(member ingestq.PendingQueue) { member.(ingestq.Yielder).Yield() },
		Clock: func() time.Time {
			command := r.raw.B().Time().Build()
			if r.cluster != nil {
				command = command.SetSlot(streammq.StreamKey(Topic, 0))
			}
			parts, err := r.raw.Do(r.t.Context(), command).AsStrSlice()
			require.NoError(r.t, err)
			var sec, usec int64
			_, err = fmt.Sscan(parts[0]+" "+parts[1], &sec, &usec)
			require.NoError(r.t, err)
			return time.Unix(sec, usec*1000)
		},
		Probe: func(ctx context.Context) error { return r.raw.Do(ctx, r.raw.B().Ping().Build()).Error() },
	}
}

func envelope(doc string, version int) *pb.TaskEnvelope {
	return &pb.TaskEnvelope{
		SchemaVersion: pb.SchemaVersion, TaskId: fmt.Sprintf("%s-v%04d", doc, version), DocumentId: doc, Type: "document", UserId: "local",
	}
}

// read reads until it has n deliveries.
func read(t testing.TB, q ingestq.Consumer, n int) []ingestq.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var all []ingestq.Delivery
	for len(all) < n {
		require.NoError(t, ctx.Err(), "%d of %d read", len(all), n)
		some, err := q.Read(ctx, n-len(all), time.Second)
		if !errors.Is(err, ingestq.ErrUnavailable) { // a server that was held up answers the next read
			require.NoError(t, err, "%d of %d read", len(all), n)
		}
		all = append(all, some...)
	}
	return all
}

func ids(deliveries []ingestq.Delivery) []string {
	list := make([]string, 0, len(deliveries))
	for _, d := range deliveries {
		list = append(list, d.ID)
	}
	return list
}
