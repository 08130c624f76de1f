package redisq

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/streammq/stream"
	pb "github.com/millweir/millweir/proto"
)

// waitLimit is for what must happen on a loaded machine; no test waits for it in full when it passes.
const waitLimit = 2 * time.Minute

func tasks(n int) []*pb.TaskEnvelope {
	all := make([]*pb.TaskEnvelope, n)
	for i := range all {
		all[i] = &pb.TaskEnvelope{TaskId: "task-" + strconv.Itoa(i)}
	}
	return all
}

func publish(t testing.TB, p ingestq.Publisher, n int) []string {
	t.Helper()
	ids, err := p.Publish(t.Context(), tasks(n))
	require.NoError(t, err)
	return ids
}

func read(t testing.TB, q *Queue, n int) []string {
	t.Helper()
	var ids []string
	require.Eventually(t, func() bool {
		some, err := q.Read(t.Context(), n-len(ids), 100*time.Millisecond)
		for _, d := range some {
			ids = append(ids, d.ID)
		}
		return err == nil && len(ids) == n
	}, waitLimit, time.Millisecond)
	return ids
}

// reader reads in the background until the test ends.
type reader struct {
	mu    sync.Mutex
	got   map[string]int // by task
	calls int
}

func startReader(t testing.TB, q *Queue) *reader {
	t.Helper()
	r := &reader{got: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			some, _ := q.Read(ctx, 100, time.Second)
			r.mu.Lock()
			r.calls++
			for _, d := range some {
				r.got[d.Envelope().GetTaskId()]++
			}
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

func (r *reader) has(task string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[task] > 0
}

// TestGroupComesBack tries each way to lose the stream or the group under a blocked reader.
func TestGroupComesBack(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string][]string{
		"flushall":       {"FLUSHALL"},
		"del":            {"DEL", defaultStream},
		"xgroup_destroy": {"XGROUP", "DESTROY", defaultStream, defaultGroup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := labserver.Private(t, labserver.KindRedis, labserver.Options{})
			r := newRig(t, s.URL("0"))
			q := r.queue(nil)
			seen := startReader(t, q)
			publish(t, q, 1)
			require.Eventually(t, func() bool { return seen.has("task-0") }, waitLimit, time.Millisecond)
			for round := range 3 {
				r.do(t, lose...)
				_, err := q.Publish(t.Context(), []*pb.TaskEnvelope{{TaskId: "after-" + strconv.Itoa(round)}})
				require.NoError(t, err)
				require.Eventually(t, func() bool { return seen.has("after-" + strconv.Itoa(round)) }, waitLimit, time.Millisecond,
					"round %d", round)
			}
			require.GreaterOrEqual(t, testutil.ToFloat64(q.metrics.healed.WithLabelValues(q.cfg.StreamKey)), 1.0)
		})
	}
}

// making is a client beside which another call finds the group as soon as it is made.
type making struct {
	rueidis.Client
	beside func()
}

func (m making) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	made := command.Commands()[0] == "XGROUP"
	result := m.Client.Do(ctx, command)
	if made {
		m.beside()
	}
	return result
}

// Found at a first start of millweir dev: the first group is none that was lost, although another call has seen it already.
func TestTheFirstGroupIsNoLoss(t *testing.T) {
	t.Parallel()
	url := labserver.Private(t, labserver.KindRedis, labserver.Options{}).URL("0")
	var q *Queue
	q = New(making{newTestClient(t, url), func() {
		_, err := q.Pending(t.Context(), 0, "", 1)
		require.NoError(t, err)
	}}, NewDefaultConfig(url), slog.New(slog.DiscardHandler), time.Now, nil)
	_, err := q.Read(t.Context(), 1, time.Millisecond)
	require.NoError(t, err)
	require.Zero(t, testutil.ToFloat64(q.metrics.healed.WithLabelValues(q.cfg.StreamKey)))
}

// TestDestroyedInALoop: whoever destroys the group for ever gets neither a hot loop nor a full log.
func TestDestroyedInALoop(t *testing.T) {
	t.Parallel()
	s := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	r := newRig(t, s.URL("0"))
	var log lines
	q := r.queue(nil)
	q.log = slog.New(slog.NewJSONHandler(&log, nil))
	publish(t, q, 1)
	read(t, q, 1)
	seen := startReader(t, q)
	began, healed := time.Now(), 0.0
	for time.Since(began) < 3*time.Second || healed < 2 && time.Since(began) < waitLimit {
		_ = r.raw.Do(t.Context(), r.raw.B().Arbitrary("XGROUP", "DESTROY", defaultStream, defaultGroup).Build()).Error()
		healed = testutil.ToFloat64(q.metrics.healed.WithLabelValues(q.cfg.StreamKey))
	}
	seen.mu.Lock()
	calls := seen.calls
	seen.mu.Unlock()
	took := time.Since(began).Seconds()
	require.Less(t, float64(calls), 20*took, "reads in %f s", took)
	require.Greater(t, healed, 1.0)
	require.Less(t, healed, 3.4*took, "groups made in %f s", took)
	require.Eventually(t, func() bool { // it comes back within the longest pause
		_, err := q.Watermark(t.Context())
		return err == nil
	}, waitLimit, 10*time.Millisecond)
	require.Less(t, strings.Count(log.String(), "\n"), 5+int(time.Since(began)/healLogEvery), log.String())
}

// lines is a log that is read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestWrongTypeDoesNotSpin: the key is a string of somebody else's.
func TestWrongTypeDoesNotSpin(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	r.do(t, "SET", defaultStream, "x")
	q := r.queue(nil)
	start := time.Now()
	for range 4 {
		_, err := q.Read(t.Context(), 1, time.Second)
		require.ErrorIs(t, err, ingestq.ErrUnavailable)
		require.ErrorContains(t, err, "WRONGTYPE")
	}
	require.Greater(t, time.Since(start), (50+100+200+400)*time.Millisecond)
	_, err := q.Watermark(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	_, err = q.Trim(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
}

// calls are all methods that ask Redis.
func calls(q *Queue) map[string]func(context.Context) error {
	id := "1-1"
	return map[string]func(context.Context) error{
		"publish": func(ctx context.Context) error { _, err := q.Publish(ctx, tasks(1)); return err },
		"read":    func(ctx context.Context) error { _, err := q.Read(ctx, 1, time.Second); return err },
		"ack":     func(ctx context.Context) error { return q.Ack(ctx, id) },
		"adopt":   func(ctx context.Context) error { _, err := q.Adopt(ctx, id); return err },
		"requeue": func(ctx context.Context) error {
			_, err := q.Requeue(ctx, []ingestq.Copy{{ID: id, Envelope: tasks(1)[0]}})
			return err
		},
		"pending":     func(ctx context.Context) error { _, err := q.Pending(ctx, 0, "", 10); return err },
		"quarantine":  func(ctx context.Context) error { return q.Quarantine(ctx, ingestq.Delivery{ID: id}) },
		"deadletters": func(ctx context.Context) error { return q.DeadLetters(ctx, make([]ingestq.DeadLetter, 1)) },
		"letgo":       func(ctx context.Context) error { return q.Unpin(ctx, 0, id) },
		"trim":        func(ctx context.Context) error { _, err := q.Trim(ctx); return err },
		"horizon":     func(ctx context.Context) error { _, err := q.Watermark(ctx); return err },
		"stats":       func(ctx context.Context) error { _, err := q.Stats(ctx); return err },
		"ping":        q.Ping,
		"zombies":     func(ctx context.Context) error { _, err := q.RemoveZombies(ctx); return err },
	}
}

// requireAllFail wants ErrUnavailable from every call, in a bounded time.
func requireAllFail(t *testing.T, q *Queue) {
	t.Helper()
	var wg sync.WaitGroup
	for name, call := range calls(q) {
		wg.Go(func() {
			ended := make(chan error, 1)
			go func() { ended <- call(context.WithoutCancel(t.Context())) }()
			select {
			case err := <-ended:
				assert.ErrorIs(t, err, ingestq.ErrUnavailable, name)
			case <-time.After(10 * callTimeout):
				t.Errorf("%s hangs", name)
			}
		})
	}
	wg.Wait()
}

func requireAllWork(t *testing.T, q *Queue) {
	t.Helper()
	for name, call := range calls(q) {
		var err error
		require.Eventually(t, func() bool { err = call(t.Context()); return err == nil }, waitLimit, 10*time.Millisecond,
			"%s: %v", name, &err)
	}
}

func TestRestartedRedisIsFoundAgain(t *testing.T) {
	t.Parallel()
	s := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	q := newRig(t, s.URL("0")).queue(nil)
	requireAllWork(t, q)
	require.NoError(t, s.Kill(t.Context()))
	requireAllFail(t, q)
	require.NoError(t, s.Restart(t.Context()))
	requireAllWork(t, q)
}

// TestHangingRedisHangsNobody: a stopped server takes connections and returns nothing.
func TestHangingRedisHangsNobody(t *testing.T) {
	t.Parallel()
	s := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	q := newRig(t, s.URL("0")).queue(nil)
	requireAllWork(t, q)
	require.NoError(t, s.Pause())
	requireAllFail(t, q)
	require.NoError(t, s.Continue())
	requireAllWork(t, q)
}

func TestAQueueStartsBeforeItsRedis(t *testing.T) {
	t.Parallel()
	s := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	require.NoError(t, s.Kill(t.Context()))
	q := newRig(t, s.URL("0")).queue(nil)
	requireAllFail(t, q)
	require.NoError(t, s.Restart(t.Context()))
	requireAllWork(t, q)
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	set := labserver.Sentinel(t, 3)
	lettuce := set.URL()
	ours := "redis-sentinel://" + strings.Join(set.Addrs(), ",") + "/" + labserver.SentinelMaster
	one, two := newRig(t, lettuce).queue(nil), newRig(t, ours).queue(nil)
	requireAllWork(t, one)
	requireAllWork(t, two)
	start := time.Now()
	require.NoError(t, set.Primary.Kill(t.Context()))
	requireAllWork(t, one)
	requireAllWork(t, two)
	t.Logf("all works %s after the primary was killed", time.Since(start).Round(time.Millisecond))
}

// TestDemotedPrimaryIsLeft: after an ordered failover the old primary lives on as a replica, and refuses writes.
func TestDemotedPrimaryIsLeft(t *testing.T) {
	t.Parallel()
	set := labserver.Sentinel(t, 1)
	q := newRig(t, set.URL()).queue(nil)
	requireAllWork(t, q)
	require.Eventually(t, func() bool { // it wants a replica that has caught up
		answer, err := set.Sentinels[0].RedisCommand(t.Context(), "SENTINEL", "FAILOVER", labserver.SentinelMaster)
		return err == nil && answer == "+OK"
	}, waitLimit, 50*time.Millisecond)
	replica := newRig(t, set.Replica.URL("0")).queue(nil)
	require.Eventually(t, func() bool { return replica.Ping(t.Context()) == nil }, waitLimit, 10*time.Millisecond, "promoted")
	requireAllWork(t, q)
	before, err := replica.Stats(t.Context())
	require.NoError(t, err)
	// Until the sentinel has turned the old primary, writes to it succeed and are lost: the table brings them back.
	require.Eventually(t, func() bool {
		_, _ = q.Publish(t.Context(), tasks(1))
		after, err := replica.Stats(t.Context())
		return err == nil && after.Length > before.Length
	}, waitLimit, 10*time.Millisecond, "written to the new primary")
}

// TestLargeEntriesGoInSeveralPipelines: neither a publish nor a reconciling is bounded by its number of entries alone.
func TestLargeEntriesGoInSeveralPipelines(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.queue(nil)
	all := tasks(20)
	for _, e := range all {
		e.FilePath = strings.Repeat("x", pb.MaxEnvelope-1000)
	}
	ids, err := q.Publish(t.Context(), all)
	require.NoError(t, err)
	copies := make([]ingestq.Copy, 0, len(all))
	for len(copies) < len(all) {
		some, err := q.Read(t.Context(), 5, time.Second)
		require.NoError(t, err)
		for _, d := range some {
			require.Equal(t, ids[len(copies)], d.ID)
			copies = append(copies, ingestq.Copy{ID: d.ID, Envelope: d.Envelope()})
		}
	}
	n, err := q.Requeue(t.Context(), copies)
	require.NoError(t, err)
	require.Equal(t, len(all), n)
	r.do(t, "FLUSHDB")
}

func TestAQueueStartsBeforeItsSentinels(t *testing.T) {
	t.Parallel()
	set := labserver.Sentinel(t, 1)
	require.NoError(t, set.Sentinels[0].Kill(t.Context()))
	q := newRig(t, set.URL()).queue(nil)
	requireAllFail(t, q)
	require.NoError(t, set.Sentinels[0].Restart(t.Context()))
	requireAllWork(t, q)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	url, ca := labserver.RedisTLSURL(t)
	requireAllWork(t, newRig(t, url+"?ca_file="+ca).queue(nil))
	requireAllWork(t, newRig(t, url+"?skip_verify=true").queue(nil))
	err := newRig(t, url).queue(nil).Ping(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	require.ErrorContains(t, err, "certificate")
}

func TestClusterNodeIsNamed(t *testing.T) {
	t.Parallel()
	c := labserver.RedisCluster(t)
	var moved int
	for _, m := range c.Masters {
		_, err := newRig(t, m.URL("0")).queue(nil).Stats(t.Context())
		if err == nil {
			continue // it has the stream's slot
		}
		moved++
		require.ErrorIs(t, err, redisclient.ErrCluster)
		require.ErrorContains(t, err, "redis-cluster://host:port")
	}
	require.Equal(t, 2, moved)
}

// TestFullRedisLosesNothing: the copy is refused for want of memory, so the original stays.
func TestFullRedisLosesNothing(t *testing.T) {
	t.Parallel()
	s := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	r := newRig(t, s.URL("0"))
	q := r.queue(nil)
	ids := publish(t, q, 1)
	read(t, q, 1)
	r.do(t, "CONFIG", "SET", "maxmemory", "1")
	_, err := q.Requeue(t.Context(), []ingestq.Copy{{ID: ids[0], Envelope: tasks(1)[0]}})
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	require.ErrorIs(t, q.Quarantine(t.Context(), ingestq.Delivery{ID: ids[0]}), ingestq.ErrUnavailable)
	require.Error(t, q.Ping(t.Context()), "full is not ready")
	r.do(t, "CONFIG", "SET", "maxmemory", "0")
	page, err := q.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.Equal(t, ids[0], page[0].ID)
}

func TestABlockedReadStallsNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.queue(nil)
	startReader(t, q)
	// An XADD behind a BLOCK waits for its end, half a BLOCK on average: the fastest of 20 that do not wait is far below.
	fastest := time.Hour
	for range 20 {
		start := time.Now()
		publish(t, q, 1)
		fastest = min(fastest, time.Since(start))
	}
	require.Less(t, fastest, readSlice/4)
}

// A call that missed the group before another one made it tries again: for it the group is not missing again.
func TestACallThatMissedTheGroupBeforeItWasMade(t *testing.T) {
	t.Parallel()
	url := labserver.RedisURL(t)
	r, fixed := newRig(t, url), time.Now()
	q := New(newTestClient(t, url), r.cfg, slog.New(slog.DiscardHandler), func() time.Time { return fixed }, nil)
	_, err := q.Read(t.Context(), 1, 0) // makes the group
	require.NoError(t, err)
	r.do(t, "XGROUP", "DESTROY", r.cfg.StreamKey, r.cfg.Group)
	question := func() error {
		return q.client.Do(t.Context(), q.client.B().Xpending().Key(r.cfg.StreamKey).Group(r.cfg.Group).Build()).Error()
	}
	calls := 0
	require.NoError(t, q.healing(t.Context(), func() error {
		err := question()
		if calls++; calls == 1 {
			require.True(t, stream.IsMissing(err), "%v", err)
			require.NoError(t, q.healing(t.Context(), question), "another call misses it and makes it")
		}
		return err
	}))
	require.Equal(t, 2, calls)

	r.do(t, "XGROUP", "DESTROY", r.cfg.StreamKey, r.cfg.Group)
	require.ErrorIs(t, q.healing(t.Context(), question), ingestq.ErrUnavailable, "it is missing again within the pause")
}
