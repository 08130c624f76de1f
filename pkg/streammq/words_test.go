package streammq

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/produce"
)

func TestTopicNamesThatKeysCannotHoldAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a b", "a:b", "a{b}", "ä", "a\nb", strings.Repeat("x", 1000)} {
		require.ErrorIs(t, Topic{Name: name, Partitions: 1}.Validate(), ErrTopicName, "%q", name)
	}
	for _, name := range []string{"orders", "a.b-c_D9", strings.Repeat("x", model.MaxName)} {
		require.NoError(t, Topic{Name: name, Partitions: 1}.Validate(), "%q", name)
	}
	require.ErrorContains(t, Topic{Name: strings.Repeat("x", 1000), Partitions: 1}.Validate(), "1 to 200")
}

func TestNumbersOfPartitionsHaveALimitThatIsNamed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 0, MaxPartitions + 1, 10_000} {
		err := Topic{Name: "a", Partitions: n}.Validate()
		require.ErrorIs(t, err, ErrPartitions)
		require.ErrorContains(t, err, "1 to 1024")
	}
}

func TestStreamKeys(t *testing.T) {
	t.Parallel()
	require.NoError(t, model.CheckStreamKey("ingest:tasks"))
	for _, key := range []string{"", "a b", "{a}", "a\x00", strings.Repeat("x", model.MaxStreamKey+1)} {
		require.ErrorIs(t, model.CheckStreamKey(key), ErrStreamKey, "%q", key)
	}
}

func TestMessagesBeyondALimitAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		m    Message
		want error
	}{
		"payload":      {Message{Payload: make([]byte, 11)}, ErrTooLarge},
		"key":          {Message{Key: strings.Repeat("k", 1<<20)}, ErrTooLarge},
		"key bytes":    {Message{Key: "\xff"}, ErrHeader},
		"headers":      {Message{Headers: map[string]string{"a": strings.Repeat("x", MaxHeaders)}}, ErrTooLarge},
		"header bytes": {Message{Headers: map[string]string{"a": "\xff"}}, ErrHeader},
		"header name":  {Message{Headers: map[string]string{"": "a"}}, ErrHeader},
		"attempts":     {Message{MaxAttempts: -1}, ErrConfig},
	} {
		require.ErrorIs(t, model.Validate(tc.m, 10), tc.want, name)
	}
	require.NoError(t, model.Validate(Message{Key: "k", Payload: make([]byte, 10), Headers: map[string]string{"a": ""}}, 10))
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	require.NoError(t, NewDefaultConfig().Validate())
	err := Config{Layout: "x", InlineMax: -2, MaxPayload: model.MaxPayloadLimit + 1}.Validate()
	require.ErrorIs(t, err, ErrConfig)
	for _, part := range []string{"Layout", "InlineMax", "MaxPayload", "MetaRefresh", "Log"} {
		require.ErrorContains(t, err, part)
	}
}

// The literal keys are a promise to other readers (contract §6).
func TestKeysOfBothLayouts(t *testing.T) {
	t.Parallel()
	one := core.Source{Layout: LayoutSingle, Topic: "orders"}
	require.Equal(t, "stream:topic:orders:p:0", one.Stream())
	require.Equal(t, "stream:topic:orders:dlq", one.Dlq())
	require.Equal(t, "streaming:mq:lease:orders:g:0", one.Lease("g"))
	require.Equal(t, "streaming:mq:lease:orders:g:0:epoch", one.Epoch("g"))
	require.Equal(t, "streaming:mq:retry:orders", one.Retry())
	require.Equal(t, "streaming:mq:retry:item:orders:x", one.Item("x"))
	require.Equal(t, "streaming:mq:topic:orders:meta", core.MetaKey("orders"))
	require.Equal(t, "streaming:mq:topic:orders:partitions", core.PartitionsKey("orders"))
	require.Equal(t, "streaming:mq:topics:registry", core.RegistryKey)
	require.Equal(t, "task:status:u", core.StatusKey("u"))
	// Those of the Java original that are read here.
	require.Equal(t, "streaming:mq:commit:orders:p:0", one.Commit())
	require.Equal(t, "streaming:mq:payload:idx:orders", one.JavaPayloads())
	require.Equal(t, "streaming:mq:payload:ts", core.JavaPayloadTimes)

	many := core.Source{Layout: LayoutCluster, Topic: "orders"}
	require.Equal(t, one.Stream(), many.Stream())
	require.Equal(t, "{stream:topic:orders:p:0}:retry", many.Retry())
	require.Equal(t, "{stream:topic:orders:p:0}:item:x", many.Item("x"))
	require.Equal(t, "{stream:topic:orders:p:0}:lease:g", many.Lease("g"))
	require.Equal(t, "{stream:topic:orders:p:0}:lease:g:epoch", many.Epoch("g"))
	require.Equal(t, "{stream:topic:orders:p:0}:dlq", many.Dlq())

	single := core.Source{Layout: LayoutSingle, Topic: "asr-tasks", Single: true}
	require.Equal(t, "asr-tasks", single.Stream())
	require.Equal(t, "asr-tasks:dlq", single.Dlq())
	require.Equal(t, "{asr-tasks}:due:g", single.Due("g"))
}

// Others write and read these names (contract §6, and the captures in testdata/java).
func TestNamesOfHeaders(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"x-message-uuid", "x-force-partition-id", "x-original-message-id", "partitionId",
		"x-payload-hash-ref", "x-payload-storage-type", "x-payload-original-size",
	}, []string{
		HeaderUUID, HeaderForcePartition, HeaderOriginalID, HeaderPartition, HeaderPayloadRef, HeaderPayloadStorage, HeaderPayloadSize,
	})
}

// The defaults are a promise too (contract §6).
func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, DefaultPartitions)
	require.Equal(t, 64<<10, DefaultInlineMax)
	require.Equal(t, 5, DefaultMaxAttempts)
	s := NewDefaultSubscriberConfig("t", "g", nil)
	require.Equal(t, SubscriberConfig{
		Topic: "t", Group: "g", Member: "member", Role: RoleMain, Start: "0", Concurrency: 1, Batch: 10, ClaimBatch: 50, Poll: time.Second,
		Lease: 15 * time.Second, Renew: 3 * time.Second, Rebalance: 5 * time.Second, PendingScan: 30 * time.Second, ClaimIdle: 300 * time.Second,
		Retry: RetryPolicy{Backoff: time.Second, MaxBackoff: time.Minute}, RetryMode: RetryRepublish, DeadLetters: DeadLetterKeep,
		MoverBatch: 100, MoverEvery: time.Second, Retention: Retention{MaxLen: 100_000}, TrimEvery: time.Minute,
		MaxUnanswered: s.MaxUnanswered, StopTimeout: s.StopTimeout, Janitor: s.Janitor, // not the contract's
	}, s)
	single := NewDefaultStreamConfig("k", "g", "c", nil)
	require.Equal(t, []any{"k", "c", RoleBoth, RetryInPlace, Retention{}}, []any{single.StreamKey, single.Member, single.Role, single.RetryMode, single.Retention})
	c := NewDefaultConsumerConfig("t", "g")
	require.Equal(t, []any{s.Lease, s.Renew, s.Rebalance, s.Retry, s.RetryMode, s.Retention, s.TrimEvery, time.Duration(0)},
		[]any{c.Lease, c.Renew, c.Rebalance, c.Retry, c.RetryMode, c.Retention, c.TrimEvery, c.RestAfter})
}

func TestUUIDv7(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	now := time.UnixMilli(0x0123456789ab)
	seen := map[string]bool{}
	for range 10_000 {
		id := model.NewUUID(now)
		require.Regexp(t, form, id)
		require.True(t, strings.HasPrefix(id, "01234567-89ab-7"), id)
		require.False(t, seen[id])
		seen[id] = true
	}
	require.Less(t, model.NewUUID(now), model.NewUUID(now.Add(time.Millisecond)))
}

func TestPartitioners(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Partitioner{
		"hash": NewHash(), "consistent": NewConsistentHash(), "java": NewJavaHash(), "round robin": NewRoundRobin(),
	} {
		count := make([]int, 7)
		for i := range 7000 {
			n, err := produce.Choose(p, &Message{Key: "key-" + strconv.Itoa(i)}, 7)
			require.NoError(t, err)
			count[n]++
		}
		for part, n := range count {
			require.InDelta(t, 1000, n, 200, "%s gives partition %d %d of 7000", name, part, n)
		}
		spread := map[int]bool{}
		for range 7 {
			n, err := produce.Choose(p, &Message{}, 7)
			require.NoError(t, err)
			spread[n] = true
		}
		require.Len(t, spread, 7, "%s spreads messages without a key", name)
	}
}

func TestSameKeySamePartition(t *testing.T) {
	t.Parallel()
	for _, p := range []Partitioner{NewHash(), NewConsistentHash(), NewJavaHash()} {
		first, err := produce.Choose(p, &Message{Key: "a"}, 16)
		require.NoError(t, err)
		for range 10 {
			again, err := produce.Choose(p, &Message{Key: "a"}, 16)
			require.NoError(t, err)
			require.Equal(t, first, again)
		}
	}
}

// Any key has a partition that there is, the same one each time, of few and of many.
func TestAnyKeyHasAPartition(t *testing.T) {
	t.Parallel()
	keys := []string{" ", "12345", "键-ключ-😀", "key!@#$%^&*():{}", "a\x00b", "polygenelubricants", strings.Repeat("x", MaxKey)}
	for _, make := range []func() Partitioner{NewHash, NewConsistentHash, NewJavaHash} {
		for _, partitions := range []int{1, 2, 7, MaxPartitions} {
			for _, key := range keys {
				first, err := produce.Choose(make(), &Message{Key: key}, partitions)
				require.NoError(t, err)
				require.Less(t, first, partitions)
				again, err := produce.Choose(make(), &Message{Key: key}, partitions)
				require.NoError(t, err)
				require.Equal(t, first, again, "another process: %q of %d", key, partitions)
			}
		}
	}
}

type fixed int

func (f fixed) Partition(*Message, int) (int, error) { return int(f), nil }

// A partitioner of the caller's own is asked, and what it chooses is looked at.
func TestPartitionerOfTheCallers(t *testing.T) {
	t.Parallel()
	n, err := produce.Choose(fixed(3), &Message{Key: "a"}, 4)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	for _, bad := range []int{-1, 4} {
		_, err = produce.Choose(fixed(bad), &Message{Key: "a"}, 4)
		require.ErrorIs(t, err, ErrPartition)
		require.ErrorContains(t, err, "0 to 3")
	}
}

func TestForcedPartitionGoesFirst(t *testing.T) {
	t.Parallel()
	force := func(v string) *Message {
		return &Message{Key: "a", Headers: map[string]string{HeaderForcePartition: v}}
	}
	for _, p := range []Partitioner{NewHash(), NewRoundRobin(), NewExplicit()} {
		for v, want := range map[string]int{"3": 3, "4": 0, "-1": 3, "-4": 0, "7": 3, "2147483647": 3, "-2147483648": 0} {
			n, err := produce.Choose(p, force(v), 4)
			require.NoError(t, err)
			require.Equal(t, want, n, v)
		}
	}
	free, err := produce.Choose(NewHash(), &Message{Key: "a"}, 4)
	require.NoError(t, err)
	for _, v := range []string{"x", "", "1.5", "2147483648"} { // no int of Java: the key decides
		n, err := produce.Choose(NewHash(), force(v), 4)
		require.NoError(t, err)
		require.Equal(t, free, n, v)
		_, err = produce.Choose(NewExplicit(), force(v), 4)
		require.ErrorIs(t, err, ErrPartition, v)
	}
	_, err = produce.Choose(NewExplicit(), &Message{Key: "a"}, 4)
	require.ErrorIs(t, err, ErrPartition)
}

func TestConsistentHashMovesFewKeys(t *testing.T) {
	t.Parallel()
	moved := 0
	for i := range 10_000 {
		before, after := produce.Jump(produce.Fnv64(strconv.Itoa(i)), 9), produce.Jump(produce.Fnv64(strconv.Itoa(i)), 10)
		if before != after {
			require.Equal(t, 9, after, "keys move to the new partition only")
			moved++
		}
	}
	require.InDelta(t, 1000, moved, 150)
}

// Values of String.hashCode, from its definition: s[0]*31^(n-1) + … + s[n-1].
func TestJavaHash(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int32{"": 0, "a": 97, "ab": 97*31 + 98, "polygenelubricants": -2147483648, "é": 0xe9, "😀": 0xd83d*31 + 0xde00} {
		require.Equal(t, want, produce.JavaHash(s), s)
	}
	n, err := NewJavaHash().Partition(&Message{Key: "polygenelubricants"}, 8)
	require.NoError(t, err)
	require.Equal(t, 0, n, "the smallest number has no positive twin")
}
