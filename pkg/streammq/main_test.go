package streammq

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/redistest"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

func TestMain(m *testing.M) {
	if place := os.Getenv(memberProcess); place != "" {
		runMember(place)
	}
	redistest.Main(m, func() error {
		return goleak.Find(
			// A client of a cluster that changed looks again a second later, and five seconds later closes old connections.
			goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
			goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
	})
}

const waitLimit = time.Minute // of a wait for something that must come

var topicNumber atomic.Int64

// rig is one Redis, with a topic name that no other test uses.
type rig struct {
	t      testing.TB
	home   home
	layout Layout
	client rueidis.Client
	topic  string
	seen   *recorder
}

// onBothLayouts runs a test in all homes, beside the others.
func onBothLayouts(t *testing.T, test func(r *rig)) {
	t.Parallel()
	for _, h := range homes {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			test(newRigIn(t, h))
		})
	}
	if _, cannot := emulatorCannot[t.Name()]; !cannot {
		t.Run(emulated.name, func(t *testing.T) {
			t.Parallel()
			test(newRigIn(t, emulated))
		})
	}
}

// newRig has one Redis, or with LayoutCluster a cluster.
func newRig(t testing.TB, layout Layout) *rig {
	t.Helper()
	if layout == LayoutCluster {
		return newRigIn(t, homes[2])
	}
	return newRigIn(t, homes[0])
}

func newRigIn(t testing.TB, h home) *rig {
	t.Helper()
	r := &rig{t: t, home: h, layout: h.layout, topic: "t" + strconv.FormatInt(topicNumber.Add(1), 10), seen: &recorder{}}
	if r.home.addrs == nil {
		r.home.addrs, r.home.db = h.open(t)
	}
	r.client = r.connect()
	return r
}

// another rig on the same server, with a topic of its own.
func (r *rig) another() *rig { return newRigIn(r.t, r.home) }

// newPrivateRig has a server of its own, which a test may flush and stop.
func newPrivateRig(t testing.TB, args ...string) (*rig, *redistest.Server) {
	t.Helper()
	s := redistest.Private(t, redistest.Options{Args: args})
	return newRigIn(t, home{name: "private", layout: LayoutSingle, addrs: []string{s.Addr}}), s
}

func (r *rig) connect() rueidis.Client {
	r.t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: r.home.addrs, SelectDB: r.home.db, DisableCache: true, ForceSingleClient: len(r.home.addrs) == 1,
		AlwaysRESP2:        r.home.resp2,
		ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10, RingScaleEachConn: 9,
	})
	require.NoError(r.t, err)
	r.t.Cleanup(client.Close)
	return client
}

// mq is an MQ of one process; change may be nil.
func (r *rig) mq(change func(*Config)) *MQ {
	r.t.Helper()
	cfg := NewDefaultConfig()
	cfg.Layout, cfg.Observer = r.layout, r.seen
	cfg.InlineMax = DefaultInlineMax // both kinds of payload in each layout
	cfg.Log = slog.New(slog.DiscardHandler)
	if change != nil {
		change(&cfg)
	}
	q, err := New(r.client, cfg)
	require.NoError(r.t, err)
	return q
}

func (r *rig) source(partition int) core.Source {
	return core.Source{Layout: r.layout, Topic: r.topic, Part: partition}
}

// topicOf makes the rig's topic.
func (r *rig) topicOf(q *MQ, partitions int) {
	r.t.Helper()
	_, err := q.CreateTopic(context.Background(), Topic{Name: r.topic, Partitions: partitions})
	require.NoError(r.t, err)
}

// do sends a command as a person would.
func (r *rig) do(args ...string) rueidis.RedisMessage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	command := r.client.B().Arbitrary(args[0])
	if len(args) > 1 {
		command = command.Keys(args[1]).Args(args[2:]...)
	}
	m, err := r.client.Do(ctx, command.Build()).ToMessage()
	if !rueidis.IsRedisNil(err) {
		require.NoError(r.t, err, "%v", args)
	}
	return m
}

func (r *rig) number(args ...string) int {
	r.t.Helper()
	m := r.do(args...)
	n, err := m.AsInt64()
	require.NoError(r.t, err)
	return int(n)
}

func (r *rig) text(args ...string) string {
	r.t.Helper()
	m := r.do(args...)
	s, err := m.ToString()
	require.NoError(r.t, err)
	return s
}

// allKeys are the names of keys on all nodes.
func (r *rig) allKeys(pattern string) []string {
	r.t.Helper()
	var keys []string
	for _, node := range r.client.Nodes() {
		some, err := node.Do(context.Background(), node.B().Keys().Pattern(pattern).Build()).AsStrSlice()
		require.NoError(r.t, err)
		keys = append(keys, some...)
	}
	return keys
}

// entries are what a stream holds.
func (r *rig) entries(stream string) []rueidis.XRangeEntry {
	r.t.Helper()
	m := r.do("XRANGE", stream, "-", "+")
	entries, err := m.AsXRange()
	require.NoError(r.t, err)
	return entries
}

// pending is the number of pending entries of a partition in a group; -1 when there is no group yet.
func (r *rig) pending(partition int, group string) int {
	r.t.Helper()
	return r.pendingOf(r.source(partition).Stream(), group)
}

func (r *rig) pendingOf(key, group string) int {
	r.t.Helper()
	summary, err := r.client.Do(context.Background(), r.client.B().Xpending().Key(key).Group(group).Build()).ToArray()
	if stream.IsMissing(err) {
		return -1
	}
	require.NoError(r.t, err)
	n, err := summary[0].AsInt64()
	require.NoError(r.t, err)
	return int(n)
}

func (r *rig) publish(q *MQ, keysAndPayloads ...string) []Receipt {
	r.t.Helper()
	var messages []Message
	for i := 0; i < len(keysAndPayloads); i += 2 {
		messages = append(messages, Message{Key: keysAndPayloads[i], Payload: []byte(keysAndPayloads[i+1])})
	}
	receipts, err := q.NewProducer(nil).PublishBatch(context.Background(), r.topic, messages)
	require.NoError(r.t, err)
	return receipts
}

// recorder counts events.
type recorder struct {
	mu     sync.Mutex
	counts map[EventKind]int
	of     map[[2]EventKind]int // refused and failed writes, and what they were
}

func (r *recorder) Observe(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts, r.of = map[EventKind]int{}, map[[2]EventKind]int{}
	}
	r.counts[e.Kind] += e.Count
	if e.Of != "" {
		r.of[[2]EventKind{e.Kind, e.Of}] += e.Count
	}
}

// countOf is the number of writes of one kind that were refused or failed.
func (r *recorder) countOf(kind, of EventKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[[2]EventKind{kind, of}]
}

func (r *recorder) count(kind EventKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[kind]
}

// told waits until observers have heard of something n times: they hear of it after the server has done it.
func (r *rig) told(kind EventKind, n int) {
	r.t.Helper()
	eventually(r.t, func() bool { return r.seen.count(kind) == n }, "%d times %s", n, kind)
}

// eventually waits for a condition.
func eventually(t testing.TB, condition func() bool, text string, args ...any) {
	t.Helper()
	require.Eventually(t, condition, waitLimit, 5*time.Millisecond, append([]any{text}, args...)...)
}
