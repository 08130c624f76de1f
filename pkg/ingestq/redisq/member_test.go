package redisq

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

func (r *rig) members(t testing.TB) []string {
	t.Helper()
	answer := r.do(t, "XINFO", "CONSUMERS", r.cfg.StreamKey, r.cfg.Group)
	consumers, err := answer.ToArray()
	require.NoError(t, err)
	names := make([]string, 0, len(consumers))
	for _, c := range consumers {
		info, err := c.AsMap()
		require.NoError(t, err)
		names = append(names, stream.Text(info["name"]))
	}
	return names
}

func (r *rig) alive(t testing.TB, q *Queue) bool {
	t.Helper()
	m := r.do(t, "EXISTS", q.aliveKey(q.name))
	return stream.Number(m, 0) == 1
}

// eager are settings under which every dead member is a zombie at once.
func eager(c *Config) { c.ZombieMinIdle, c.ZombieInterval = 0, time.Second }

func TestHeartbeatTellsTheLivingFromTheDead(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": labserver.RedisURL(t), "embedded": embeddedURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, url)
			short := func(c *Config) { c.HeartbeatTTL = 12 * time.Second } // a machine that stalls for seconds beats in time
			dead, living := r.queue(short), r.queue(short)
			publish(t, dead, 1)
			read(t, dead, 1)
			require.True(t, r.alive(t, dead), "alive from the first read on")
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- living.Run(ctx) }()
			require.Eventually(t, func() bool { return !r.alive(t, dead) }, waitLimit, 10*time.Millisecond)
			for range 130 { // longer than a TTL
				require.True(t, r.alive(t, living))
				_, err := living.Read(t.Context(), 1, 100*time.Millisecond)
				if !errors.Is(err, ingestq.ErrUnavailable) { // a server that was held up answers the next read
					require.NoError(t, err)
				}
			}
			cancel()
			require.NoError(t, <-ended)
			require.False(t, r.alive(t, living))
			require.Equal(t, []string{dead.Name()}, r.members(t), "who holds nothing has left")
		})
	}
}

func TestZombiesGoWithoutLosingWhatTheyHold(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t)) // the embedded server, whose members are one process, has no idle times
	holder, empty, living := r.queue(nil), r.queue(nil), r.queue(nil)
	ids := publish(t, holder, 4)
	read(t, holder, 2)
	read(t, empty, 1)
	require.NoError(t, empty.Ack(t.Context(), ids[2]))
	read(t, living, 1)
	require.NoError(t, living.Ack(t.Context(), ids[3]))
	for _, q := range []*Queue{holder, empty} {
		r.do(t, "DEL", q.aliveKey(q.name))
	}

	dry := r.queue(func(c *Config) { eager(c); c.ZombieDryRun = true })
	n, err := dry.RemoveZombies(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Len(t, r.members(t), 3, "a dry run removes nobody")

	young := r.queue(nil) // 72 h
	n, err = young.RemoveZombies(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)

	sweeper := r.queue(eager)
	n, err = sweeper.RemoveZombies(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "the one that holds nothing and has no heartbeat")
	require.ElementsMatch(t, []string{holder.name, living.name}, r.members(t))
	require.EqualValues(t, 1, testutil.ToFloat64(sweeper.metrics.zombies.WithLabelValues(r.cfg.StreamKey)))

	heir := r.queue(func(c *Config) { eager(c); c.ZombieMaxPending = 2 })
	page, err := heir.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	idle := page[0].Idle
	n, err = heir.RemoveZombies(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.ElementsMatch(t, []string{heir.name, living.name}, r.members(t))
	page, err = heir.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 2, "what it held is not lost")
	require.Equal(t, heir.name, page[0].Consumer)
	require.GreaterOrEqual(t, page[0].Idle, idle, "nor made young")
	require.EqualValues(t, 1, page[0].Deliveries)
}

// TestZombieSweepSparesWhoCameBack: it is decided inside the script, not by the list that was read before.
func TestZombieSweepSparesWhoCameBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q, sweeper := r.queue(nil), r.queue(eager)
	publish(t, q, 2)
	read(t, q, 1)
	for name, change := range map[string]func(){
		"alive":        func() {},
		"holds more":   func() { r.do(t, "DEL", q.aliveKey(q.name)) },
		"another name": func() {},
	} {
		change()
		member := q.name
		if name == "another name" {
			member = "nobody"
		}
		removed, err := sweeper.removeOne(t.Context(), member)
		require.NoError(t, err, name)
		require.False(t, removed, name)
	}
	sweeper.cfg.ZombieMinIdle, sweeper.cfg.ZombieMaxPending = time.Hour, 1
	removed, err := sweeper.removeOne(t.Context(), q.name)
	require.NoError(t, err)
	require.False(t, removed, "too young")
	require.Equal(t, []string{q.name}, r.members(t))
}

func TestRunRemovesZombiesAndOutlivesRedis(t *testing.T) {
	t.Parallel()
	s := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	r := newRig(t, s.URL("0"))
	dead, q := r.queue(nil), r.queue(func(c *Config) { eager(c); c.HeartbeatTTL = time.Second })
	_, err := dead.Read(t.Context(), 1, 0)
	require.NoError(t, err)
	r.do(t, "DEL", dead.aliveKey(dead.name))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return len(r.members(t)) == 0 }, waitLimit, 10*time.Millisecond)
	require.NoError(t, s.Kill(t.Context()))
	require.NoError(t, s.Restart(t.Context()))
	require.Eventually(t, func() bool {
		n, err := r.raw.Do(t.Context(), r.raw.B().Exists().Key(q.aliveKey(q.name)).Build()).AsInt64()
		return err == nil && n == 1
	}, waitLimit, 10*time.Millisecond)
	require.NoError(t, s.Kill(t.Context()))
	cancel()
	require.NoError(t, <-ended, "a Redis that is gone does not keep a process from stopping")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	r := newRig(t, s.URL("0"))
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	require.Equal(t, metrics.deadLetters, NewMetrics(registry).deadLetters, "a second set in the process counts into the first")
	q := r.queue(nil)
	q.metrics = metrics
	registry.MustRegister(NewCollector(q.Streams, func() time.Time { return q.now() }))
	ids := publish(t, q, 5)
	read(t, q, 3)
	_, err := q.Adopt(t.Context(), ids...)
	require.NoError(t, err)
	require.NoError(t, q.DeadLetters(t.Context(), make([]ingestq.DeadLetter, 2)))
	require.NoError(t, q.Quarantine(t.Context(), ingestq.Delivery{ID: ids[0]}))
	const want = `
# HELP ingest_stream_length Entries in the stream.
# TYPE ingest_stream_length gauge
ingest_stream_length{stream="ingest:tasks"} 5
# HELP ingest_stream_pending Entries that the group was given and has not acknowledged.
# TYPE ingest_stream_pending gauge
ingest_stream_pending{group="ingest-workers",stream="ingest:tasks"} 2
# HELP ingest_stream_reclaim_total Pending deliveries that were taken over, by result: claimed, gone (no such pending entry) or error.
# TYPE ingest_stream_reclaim_total counter
ingest_stream_reclaim_total{result="claimed"} 3
ingest_stream_reclaim_total{result="error"} 0
ingest_stream_reclaim_total{result="gone"} 2
# HELP ingest_task_dlq_total Dead letters written to the dead letter stream or topic.
# TYPE ingest_task_dlq_total counter
ingest_task_dlq_total 3
`
	require.Eventually(t, func() bool { // a scrape that takes longer than 1 s shows no counts of Redis
		err = testutil.GatherAndCompare(registry, strings.NewReader(want),
			"ingest_stream_length", "ingest_stream_pending", "ingest_stream_reclaim_total", "ingest_task_dlq_total")
		return err == nil
	}, waitLimit, 100*time.Millisecond, "%v", &err)

	require.NoError(t, s.Kill(t.Context()))
	later := time.Now().Add(time.Hour)
	q.now = func() time.Time { return later } // past the cache
	n, err := testutil.GatherAndCount(registry, "ingest_stream_length", "ingest_stream_pending")
	require.NoError(t, err, "a scrape does not fail with Redis")
	require.Zero(t, n, "and shows no old numbers")
	_, err = q.Adopt(t.Context(), "1-1", "2-1")
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	require.EqualValues(t, 2, testutil.ToFloat64(metrics.reclaim.WithLabelValues("error")))
}

func TestWithoutADeadLetterStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.queue(func(c *Config) { c.DLQKey = "" })
	var log bytes.Buffer
	q.log = slog.New(slog.NewJSONHandler(&log, nil))
	id := stream.Text(r.do(t, "XADD", r.cfg.StreamKey, "*", "hello", "world"))
	some, err := q.Read(t.Context(), 1, time.Second)
	require.NoError(t, err)
	require.Error(t, some[0].Err)
	require.NoError(t, q.Quarantine(t.Context(), some[0]))
	require.NoError(t, q.DeadLetters(t.Context(), make([]ingestq.DeadLetter, 1)))
	require.Contains(t, log.String(), id)
	require.EqualValues(t, 1, testutil.ToFloat64(q.metrics.dropped))
	require.Zero(t, testutil.ToFloat64(q.metrics.deadLetters))
	require.Zero(t, stream.Number(r.do(t, "EXISTS", defaultDLQ, ""), -1))
	page, err := q.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Empty(t, page)
}
