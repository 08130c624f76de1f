package redisq

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/ingestqtest"
	"github.com/millweir/millweir/pkg/labserver"
	pb "github.com/millweir/millweir/proto"
)

func TestHeartbeatsAreNamedForTheirSlot(t *testing.T) {
	t.Parallel()
	one := newRig(t, labserver.RedisURL(t)).queue(nil)
	require.Equal(t, "ingest:tasks:alive:ingest-workers:m", one.aliveKey("m"))
	c := labserver.RedisCluster(t)
	for stream, want := range map[string]string{
		"ingest:tasks":   "{ingest:tasks}:alive:ingest-workers:m",
		"{ingest}:tasks": "{ingest}:tasks:alive:ingest-workers:m",
	} {
		q := newRig(t, c.URL()).queue(func(cfg *Config) { cfg.StreamKey = stream })
		require.Equal(t, want, q.aliveKey("m"))
		require.Equal(t, slotOf(t, c.Masters[0], stream), slotOf(t, c.Masters[0], q.aliveKey("m")))
		part := NewPart(q.client, q.cfg, Part{Member: "m", Beats: "all"}, q.log, q.now, nil)
		require.Equal(t, want, part.aliveKey("m"), "a part has heartbeats of its own")
	}
	require.Equal(t, slotOf(t, c.Masters[0], "{a}:dlq"), slotOf(t, c.Masters[0], writtenKey("{a}:dlq")))
	require.Equal(t, slotOf(t, c.Masters[0], "a:dlq"), slotOf(t, c.Masters[0], writtenKey("a:dlq")))
}

func slotOf(t testing.TB, s *labserver.Server, key string) int {
	t.Helper()
	answer, err := s.RedisCommand(t.Context(), "CLUSTER", "KEYSLOT", key)
	require.NoError(t, err)
	slot, err := strconv.Atoi(strings.TrimPrefix(answer, ":"))
	require.NoError(t, err, answer)
	return slot
}

// dying is a client whose process dies before a command.
type dying struct {
	rueidis.Client
	before string
}

var errDied = errors.New("died")

func (d dying) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	if command.Commands()[0] == d.before {
		return rueidis.NewErrorResult(errDied)
	}
	return d.Client.Do(ctx, command)
}

func (d dying) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	for _, command := range multi {
		if command.Commands()[0] == d.before {
			results := make([]rueidis.RedisResult, len(multi))
			for i := range results {
				results[i] = rueidis.NewErrorResult(errDied)
			}
			return results
		}
	}
	return d.Client.DoMulti(ctx, multi...)
}

// quarantineDies reads a delivery that is no envelope on a cluster and quarantines it in a process that dies before a command.
func quarantineDies(t *testing.T, before string) (*rig, ingestqtest.Bench, ingestq.Delivery) {
	t.Helper()
	r := newClusterRig(t, labserver.RedisCluster(t))
	b := r.bench(t)
	b.AddRaw(map[string]string{"no": "envelope"})
	victim := New(dying{newTestClient(t, r.cfg.URL), before}, r.cfg, slog.New(slog.DiscardHandler), time.Now, nil)
	deliveries, err := victim.Read(t.Context(), 1, time.Second)
	require.NoError(t, err)
	require.Len(t, deliveries, 1)
	require.ErrorIs(t, victim.Quarantine(t.Context(), deliveries[0]), errDied)
	return r, b, deliveries[0]
}

// Between the two steps of a quarantine the process dies: the delivery stays pending, and the next one adds no second dead letter.
func TestACrashInAQuarantineDoublesNoDeadLetter(t *testing.T) {
	t.Parallel()
	r, b, delivery := quarantineDies(t, "XACK")
	require.Len(t, b.DeadLetters(), 1, "the dead letter comes first")

	heir := r.queue(nil)
	page, err := heir.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 1, "and the delivery is still there")
	for range 2 {
		require.NoError(t, heir.Quarantine(t.Context(), page[0].Delivery))
		require.Len(t, b.DeadLetters(), 1)
	}
	require.Equal(t, delivery.ID, b.DeadLetters()[0]["sourceRecordId"])
	page, err = heir.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Empty(t, page)
}

// before the dead letter there is nothing at all.
func TestACrashBeforeTheDeadLetterLosesNothing(t *testing.T) {
	t.Parallel()
	r, b, delivery := quarantineDies(t, "EVALSHA")
	require.Empty(t, b.DeadLetters())
	require.NoError(t, r.queue(nil).Quarantine(t.Context(), delivery))
	require.Len(t, b.DeadLetters(), 1)
}

// onFirst is a stream key whose slot the first master has.
func onFirst(t testing.TB, c *labserver.Cluster) string {
	t.Helper()
	for {
		key := "stream-" + rand.Text()
		if answer, err := c.Masters[0].RedisCommand(t.Context(), "EXISTS", key); err == nil && strings.HasPrefix(answer, ":") {
			return key
		}
	}
}

// A master dies, hangs or is demoted, and its replica takes its place: what was replicated is read there, and all works again.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, *labserver.Server) error{
		"killed":  func(ctx context.Context, s *labserver.Server) error { return s.Kill(ctx) },
		"hanging": func(_ context.Context, s *labserver.Server) error { return s.Pause() },
		"demoted": nil, // it lives on as a replica, and redirects
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := labserver.PrivateCluster(t)
			r := newClusterRig(t, c)
			r.cfg.StreamKey = onFirst(t, c)
			q := r.queue(nil)
			requireAllWork(t, q)
			_, err := q.Publish(t.Context(), []*pb.TaskEnvelope{{TaskId: "before"}})
			require.NoError(t, err)
			require.NoError(t, c.Synced(t.Context()))
			if end != nil {
				require.NoError(t, end(t.Context(), c.Masters[0]))
				_, err = q.Publish(t.Context(), tasks(1))
				require.ErrorIs(t, err, ingestq.ErrUnavailable)
			}
			require.NoError(t, c.Promote(t.Context()))
			start := time.Now()
			seen := startReader(t, q)
			require.Eventually(t, func() bool { return seen.has("before") }, waitLimit, time.Millisecond)
			requireAllWork(t, q)
			t.Logf("all works %s after the replica was promoted", time.Since(start).Round(time.Millisecond))
		})
	}
}

// The stream's slot moves with its keys while members read and publish: those that are not there any more are told ASK, then
// MOVED.
func TestSlotMovesUnderMembers(t *testing.T) {
	t.Parallel()
	c := labserver.PrivateCluster(t)
	r := newClusterRig(t, c)
	r.cfg.StreamKey = onFirst(t, c)
	q := r.queue(nil)
	seen := startReader(t, q)
	number := 0
	more := func() {
		for range 20 {
			task := "task-" + strconv.Itoa(number)
			require.Eventually(t, func() bool {
				_, err := q.Publish(t.Context(), []*pb.TaskEnvelope{{TaskId: task}})
				return err == nil
			}, waitLimit, time.Millisecond, task)
			number++
		}
	}
	// The calls of requireAllWork read too: what the reader has not read before them, it may never see.
	requireAllSeen := func() {
		for i := range number {
			require.Eventually(t, func() bool { return seen.has("task-" + strconv.Itoa(i)) }, waitLimit, time.Millisecond, "task %d", i)
		}
	}
	more()
	from, to := c.Masters[0], c.Masters[1]
	slot := strconv.Itoa(slotOf(t, from, r.cfg.StreamKey))
	do := func(s *labserver.Server, args ...string) string {
		answer, err := s.RedisCommand(t.Context(), args...)
		require.NoError(t, err)
		require.False(t, strings.HasPrefix(answer, "-"), "%v: %s", args, answer)
		return answer
	}
	id := func(s *labserver.Server) string {
		m, err := newTestClient(t, s.URL("0")).Do(t.Context(), r.raw.B().Arbitrary("CLUSTER", "MYID").Build()).ToString()
		require.NoError(t, err)
		return m
	}
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	do(from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), r.cfg.StreamKey, "0", "5000")
	more() // ASK; what has no key yet is made there
	requireAllSeen()
	requireAllWork(t, q)
	require.Eventually(t, func() bool {
		keys, err := newTestClient(t, from.URL("0")).Do(t.Context(), r.raw.B().Arbitrary("CLUSTER", "GETKEYSINSLOT", slot, "100").Build()).AsStrSlice()
		require.NoError(t, err)
		for _, key := range keys {
			do(from, "MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), key, "0", "5000", "REPLACE")
		}
		return len(keys) == 0
	}, waitLimit, time.Millisecond)
	for _, s := range []*labserver.Server{to, from, c.Masters[2]} {
		do(s, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	}
	more() // MOVED
	requireAllSeen()
	requireAllWork(t, q)
}

func TestAQueueStartsBeforeItsCluster(t *testing.T) {
	t.Parallel()
	c := labserver.PrivateCluster(t)
	require.NoError(t, c.Kill(t.Context()))
	q := newClusterRig(t, c).queue(nil)
	requireAllFail(t, q)
	for _, s := range append(c.Masters, c.Replica) {
		require.NoError(t, s.Restart(t.Context()))
	}
	requireAllWork(t, q)
}

func TestOneRedisIsNoCluster(t *testing.T) {
	t.Parallel()
	q := newRig(t, strings.Replace(labserver.Redis(t).URL("0"), "redis://", "redis-cluster://", 1)).queue(nil)
	_, err := q.Stats(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	require.ErrorContains(t, err, "must be redis://host:port")
}

func TestWhatAClusterKeeps(t *testing.T) {
	t.Parallel()
	c := labserver.PrivateCluster(t)
	client := newTestClient(t, c.URL())
	set := func(s *labserver.Server, args ...string) {
		answer, err := s.RedisCommand(t.Context(), append([]string{"CONFIG", "SET"}, args...)...)
		require.NoError(t, err)
		require.Equal(t, "+OK", answer)
	}
	for _, s := range append([]*labserver.Server{c.Replica}, c.Masters...) {
		set(s, "appendonly", "yes", "appendfsync", "always")
	}
	for _, tt := range []struct{ name, value, want string }{
		{"appendfsync", "always", "disk"}, {"appendfsync", "everysec", "1s"}, {"appendfsync", "no", "os"}, {"appendonly", "no", "none"},
	} {
		set(c.Masters[2], tt.name, tt.value)
		got, err := Keeps(t.Context(), client, c.URL())
		require.NoError(t, err)
		require.Equal(t, tt.want, got, "the node that keeps least counts")
	}
}

// A cluster of one node, over TLS: what it says of its nodes is where the others' connections go.
func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	s := labserver.Private(t, labserver.KindRedis, labserver.Options{TLS: true, Args: []string{
		"--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-announce-ip", "127.0.0.1",
	}})
	answer, err := s.RedisCommand(t.Context(), "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	require.NoError(t, err)
	require.Equal(t, "+OK", answer)
	url := "rediss-cluster://" + s.Addr
	requireAllWork(t, newRig(t, url+"?ca_file="+s.CAFile).queue(nil))
	requireAllWork(t, newRig(t, url+"?skip_verify=true").queue(nil))
	strict := newRig(t, url)
	require.ErrorIs(t, strict.queue(nil).Ping(t.Context()), ingestq.ErrUnavailable)
	err = strict.raw.Do(t.Context(), strict.raw.B().Set().Key("a").Value("1").Build()).Error() // it has all the time that a slow machine takes
	require.ErrorContains(t, err, "certificate")
}

// Who may only be let in with a password is let in on every node.
func TestClusterWithAPassword(t *testing.T) {
	t.Parallel()
	c := labserver.PrivateCluster(t)
	for _, s := range append([]*labserver.Server{c.Replica}, c.Masters...) {
		answer, err := s.RedisCommand(t.Context(), "ACL", "SETUSER", "mill", "on", ">p@ss/", "~*", "&*", "+@all")
		require.NoError(t, err)
		require.Equal(t, "+OK", answer)
		answer, err = s.RedisCommand(t.Context(), "ACL", "SETUSER", "default", "off")
		require.NoError(t, err)
		require.Equal(t, "+OK", answer)
	}
	hosts := strings.Join(c.Addrs(), ",")
	for range 4 { // their streams lie on any node
		r := newRig(t, "redis-cluster://mill:p%40ss%2F@"+hosts)
		r.cfg.StreamKey, r.cfg.DLQKey = rand.Text(), rand.Text()
		requireAllWork(t, r.queue(nil))
	}
	err := newRig(t, "redis-cluster://mill:wrong@"+hosts).queue(nil).Ping(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "wrong@")
}
