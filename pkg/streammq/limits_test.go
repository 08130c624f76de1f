package streammq

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// huge is memory that nobody may look at: it would become real.
func huge(t *testing.T, size int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(b)) })
	return b
}

// Each limit is a typed error whose text names what was given and the limit, and stands in the README's table.
func TestLimits(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, limits, _ := strings.Cut(string(readme), "## Limits\n")
	limits, _, _ = strings.Cut(limits, "\n## ")
	message := func(m Message) error { return model.Validate(m, DefaultMaxPayload) }
	topic := func(name string, partitions int) error { return Topic{Name: name, Partitions: partitions}.Validate() }
	for name, tc := range map[string]struct {
		err    error
		is     error
		texts  []string
		readme string
	}{
		"topic with braces":     {topic("a{b}", 1), ErrTopicName, []string{`"a{b}"`, "A–Z"}, "`A–Z a–z 0–9 . _ -`"},
		"topic with spaces":     {topic("a b", 1), ErrTopicName, []string{`"a b"`}, "`ErrTopicName`"},
		"topic with colons":     {topic("a:b", 1), ErrTopicName, []string{`"a:b"`}, "`ErrTopicName`"},
		"topic of 1,000":        {topic(strings.Repeat("x", 1000), 1), ErrTopicName, []string{"1000", "1 to 200"}, "1–200"},
		"no partitions":         {topic("a", 0), ErrPartitions, []string{"0 partitions", "1 to 1024"}, "1–1,024"},
		"10,000 partitions":     {topic("a", 10_000), ErrPartitions, []string{"10000", "1 to 1024"}, "1–1,024"},
		"payload of 512 MiB":    {message(Message{Payload: huge(t, 512<<20)}), ErrTooLarge, []string{"536870912", "16777216"}, "16 MiB by default, 256 MiB at most"},
		"limit of 512 MiB":      {Config{MaxPayload: 512 << 20}.Validate(), ErrConfig, []string{"MaxPayload 536870912", "268435456"}, "256 MiB at most"},
		"key of 1 MiB":          {message(Message{Key: strings.Repeat("k", 1<<20)}), ErrTooLarge, []string{"1048576", "1024"}, "1 KiB"},
		"key not UTF-8":         {message(Message{Key: "\xff"}), ErrHeader, []string{"UTF-8"}, "valid UTF-8"},
		"header not UTF-8":      {message(Message{Headers: map[string]string{"a": "\xff"}}), ErrHeader, []string{"UTF-8"}, "valid UTF-8"},
		"headers of 1 MiB":      {message(Message{Headers: map[string]string{"a": strings.Repeat("x", 1<<20)}}), ErrTooLarge, []string{"1048577", "32768"}, "32 KiB"},
		"stream key":            {model.CheckStreamKey("{a}"), ErrStreamKey, []string{"no braces"}, "1–512 bytes"},
		"stream key too long":   {model.CheckStreamKey(strings.Repeat("x", 513)), ErrStreamKey, []string{"513", "1 to 512"}, "1–512 bytes"},
		"attempts":              {message(Message{MaxAttempts: 10_001}), ErrConfig, []string{"10001", "0 to 10000"}, "10,000"},
		"a batch":               {with(NewDefaultSubscriberConfig("t", "g", (&log{}).handler(succeed)), func(c *SubscriberConfig) { c.Batch = 5000 }).Validate(), ErrConfig, []string{"5000", "1 to 1000"}, "1,000"},
		"server too old":        {New0(t).core.Judge(map[string]string{"redis_version": "6.0.9"}), ErrServer, []string{"6.0.9", "6.2"}, "`ErrServer`"},
		"server evicts":         {New0(t).core.Judge(map[string]string{"maxmemory_policy": "allkeys-lru"}), ErrEviction, []string{"allkeys-lru", "noeviction"}, "`ErrEviction`"},
		"cluster, other layout": {New0(t).core.Judge(map[string]string{"cluster_enabled": "1"}), ErrLayout, []string{"cluster"}, "`ErrLayout`"},
	} {
		require.ErrorIs(t, tc.err, tc.is, name)
		for _, text := range tc.texts {
			require.ErrorContains(t, tc.err, text, name)
		}
		require.Contains(t, limits, tc.readme, name)
	}
}

func with(c SubscriberConfig, change func(*SubscriberConfig)) SubscriberConfig {
	change(&c)
	return c
}

// New0 is an MQ without a server.
func New0(t *testing.T) *MQ {
	t.Helper()
	q, err := New(nil, NewDefaultConfig())
	require.NoError(t, err)
	return q
}

// The length is looked at before anything is copied.
func TestHugePayloadIsNotCopied(t *testing.T) { // not parallel: it counts what is allocated
	payload := huge(t, 512<<20)
	q := New0(t)
	q.core.Topics.Put("t", core.TopicMeta{Partitions: 1, Read: q.core.Cfg.Now()})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := q.NewProducer(nil).Publish(t.Context(), "t", Message{Payload: payload})
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrTooLarge)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "bytes; other tests may allocate beside it")
}

// With memory full nothing can be published, and what is there is consumed and acknowledged: that frees memory.
func TestFullServerIsConsumed(t *testing.T) {
	t.Parallel()
	r, _ := newPrivateRig(t)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	goOn := make(chan struct{})
	r.subscribe(q, seen.handler(func(*Delivery) Result {
		<-goOn
		return Success()
	}), func(c *SubscriberConfig) { c.Batch = 10 })
	var pairs []string
	for i := range 50 {
		pairs = append(pairs, "k", strconv.Itoa(i))
	}
	r.publish(q, pairs...)
	eventually(t, func() bool { return len(seen.all()) == 1 }, "it runs")
	r.do("CONFIG", "SET", "maxmemory", "1")
	close(goOn)
	eventually(t, func() bool { return r.seen.count(EventAcked) == 50 && r.pending(0, "g") == 0 }, "all are acknowledged")
	_, err := q.NewProducer(nil).Publish(t.Context(), r.topic, Message{})
	require.ErrorIs(t, err, ErrFull)
	require.ErrorContains(t, err, "maxmemory")
	r.do("CONFIG", "SET", "maxmemory", "0")
	r.publish(q, "k", "50")
	eventually(t, func() bool { return r.seen.count(EventAcked) == 51 }, "and it goes on")
}

// The process's clock jumps by an hour, to and fro. Leases, epochs and due times are Redis', so that nothing is lost.
func TestClockOfTheProcessJumps(t *testing.T) {
	onBothModes(t, func(r *rig, mode func(*SubscriberConfig)) {
		var jump atomic.Int64
		began := time.Now().Round(0) // the time of day: a monotonic clock would hide the jump
		q := r.mq(func(c *Config) {
			c.Now = func() time.Time { return began.Add(time.Since(began)).Add(time.Duration(jump.Load())) }
		})
		seen := &log{}
		r.topicOf(q, 2)
		r.subscribe(q, seen.handler(failsOnce), func(c *SubscriberConfig) {
			mode(c)
			c.HandlerTimeout = time.Minute
		})
		for i, by := range []time.Duration{0, time.Hour, -time.Hour, 0} {
			jump.Store(int64(by))
			r.publish(q, "a", strconv.Itoa(i), "b", strconv.Itoa(i))
			eventually(r.t, func() bool { return distinct(seen.all()) == 2*(i+1) && r.seen.count(EventAcked) >= 2*(i+1) }, "jump by %s", by)
		}
		r.allDone(2, 8, seen)
		require.Empty(r.t, func() []Letter {
			list, err := q.Letters(r.topic).List(context.Background(), LetterQuery{Partition: -1})
			require.NoError(r.t, err)
			return list
		}())
	})
}
