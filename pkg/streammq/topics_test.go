package streammq

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

func TestTopicIsMadeOnceAndOnlyGrows(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		_, err := q.Partitions(ctx, r.topic)
		require.ErrorIs(r.t, err, ErrUnknownTopic)

		for _, step := range []struct{ ask, want int }{{2, 2}, {2, 2}, {5, 5}, {3, 5}} {
			n, err := q.CreateTopic(ctx, Topic{Name: r.topic, Partitions: step.ask})
			require.NoError(r.t, err)
			require.Equal(r.t, step.want, n)
		}
		n, err := r.mq(nil).Partitions(ctx, r.topic)
		require.NoError(r.t, err)
		require.Equal(r.t, 5, n)
		streams := r.do("SMEMBERS", core.PartitionsKey(r.topic))
		names, err := streams.AsStrSlice()
		require.NoError(r.t, err)
		require.ElementsMatch(r.t, []string{
			StreamKey(r.topic, 0), StreamKey(r.topic, 1), StreamKey(r.topic, 2), StreamKey(r.topic, 3), StreamKey(r.topic, 4),
		}, names)
		info, err := q.Topic(ctx, r.topic)
		require.NoError(r.t, err)
		require.WithinDuration(r.t, time.Now(), info.Created, time.Minute)
		require.Equal(r.t, TopicInfo{Name: r.topic, Partitions: 5, Layout: r.layout, Created: info.Created}, info)
		topics, err := q.Topics(ctx)
		require.NoError(r.t, err)
		require.Contains(r.t, topics, info)
	})
}

func TestOtherLayoutIsRefused(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		ctx := r.t.Context()
		r.topicOf(r.mq(nil), 2)
		other := r.mq(func(c *Config) {
			c.Layout = map[Layout]Layout{LayoutSingle: LayoutCluster, LayoutCluster: LayoutSingle}[r.layout]
		})
		_, err := other.CreateTopic(ctx, Topic{Name: r.topic, Partitions: 4})
		require.ErrorIs(r.t, err, ErrLayout)
		_, err = other.Partitions(ctx, r.topic)
		require.ErrorIs(r.t, err, ErrLayout)
		n, err := r.mq(nil).Partitions(ctx, r.topic)
		require.NoError(r.t, err)
		require.Equal(r.t, 2, n, "the refused call changed nothing")
	})
}

// A meta without layout was written by a system that knows one Redis only.
func TestMetaOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	r.do("HSET", core.MetaKey(r.topic), "partitionCount", "3")
	n, err := r.mq(nil).CreateTopic(t.Context(), Topic{Name: r.topic, Partitions: 1})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	for _, bad := range []string{"many", "", "0", "-1", "3.5", "1025"} { // none of them is taken for some number
		r.do("HSET", core.MetaKey(r.topic), "partitionCount", bad)
		_, err = r.mq(nil).Partitions(t.Context(), r.topic)
		require.ErrorIs(t, err, ErrMalformed, bad)
		_, err = r.mq(nil).CreateTopic(t.Context(), Topic{Name: r.topic, Partitions: 5})
		require.ErrorIs(t, err, ErrMalformed, bad)
		require.Equal(t, bad, r.text("HGET", core.MetaKey(r.topic), "partitionCount"), "it is left to a person")
		topics, err := r.mq(nil).Topics(t.Context())
		require.NoError(t, err)
		require.Equal(t, []TopicInfo{{Name: r.topic}}, topics, "it is listed, without its partitions")
	}
}

// A topic that cannot be is refused before anything is written.
func TestTopicsThatCannotBeLeaveNothing(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		for _, partitions := range []int{-1, 0, MaxPartitions + 1} {
			_, err := q.CreateTopic(ctx, Topic{Name: r.topic, Partitions: partitions})
			require.ErrorIs(r.t, err, ErrPartitions)
		}
		require.Empty(r.t, r.allKeys("*"+r.topic+"*"))
		for _, name := range []string{"", "   ", r.topic + ":x"} {
			_, err := q.CreateTopic(ctx, Topic{Name: name, Partitions: 1})
			require.ErrorIs(r.t, err, ErrTopicName, "%q", name)
			_, err = q.NewProducer(nil).Publish(ctx, name, Message{Payload: []byte("p")})
			require.ErrorIs(r.t, err, ErrTopicName, "%q", name)
			_, err = q.Admin(name).Stats(ctx)
			require.ErrorIs(r.t, err, ErrTopicName, "%q", name)
		}
		require.Empty(r.t, r.allKeys("*"+r.topic+"*"))
	})
}

// Another process' producer learns within MetaRefresh that a topic has grown, and uses the new partitions.
func TestProducersElsewhereLearnOfGrowth(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		now := time.Now()
		q, far, ctx := r.mq(nil), r.mq(func(c *Config) { c.Now = func() time.Time { return now } }), r.t.Context()
		r.topicOf(q, 1)
		p := far.NewProducer(NewRoundRobin())
		for _, step := range []struct {
			grow, want int
			later      time.Duration
		}{{1, 1, 0}, {3, 1, 0}, {3, 3, model.DefaultMetaRefresh}} {
			r.topicOf(q, step.grow)
			now = now.Add(step.later)
			receipts, err := p.PublishBatch(ctx, r.topic, make([]Message, 6))
			require.NoError(r.t, err)
			used := map[int]int{}
			for _, receipt := range receipts {
				used[receipt.Partition]++
			}
			require.Len(r.t, used, step.want, "%+v", step)
		}
	})
}

// A producer that knows its topic goes on after a flush; one that does not is told.
func TestKnownTopicIsHealed(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(func(c *Config) { c.MetaRefresh = time.Nanosecond })
	r.topicOf(q, 3)
	r.do("FLUSHDB")
	r.publish(q, "k", "p")
	n, err := r.mq(nil).Partitions(t.Context(), r.topic)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 1, r.seen.count(EventHealed))

	r.do("FLUSHDB")
	_, err = r.mq(nil).NewProducer(nil).Publish(t.Context(), r.topic, Message{})
	require.ErrorIs(t, err, ErrUnknownTopic)
}

func TestServerIsJudged(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	require.NoError(t, r.mq(nil).Check(t.Context()))
	c := newRig(t, LayoutCluster)
	require.NoError(t, c.mq(nil).Check(t.Context()))
	require.ErrorIs(t, c.mq(func(c *Config) { c.Layout = LayoutSingle }).Check(t.Context()), ErrLayout)

	evicting, _ := newPrivateRig(t, "--maxmemory-policy", "allkeys-lru")
	require.ErrorIs(t, evicting.mq(nil).Check(t.Context()), ErrEviction)
	require.ErrorIs(t, r.mq(nil).core.Judge(map[string]string{"redis_version": "6.0.16"}), ErrServer)
	for _, version := range []string{"6.2.0", "7.0.15", "255.255.255", "unknown"} {
		require.NoError(t, r.mq(nil).core.Judge(map[string]string{"redis_version": version}), version)
	}
}

func TestPublishedEntryHasTheFieldsOfTheContract(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(func(c *Config) { c.Now = func() time.Time { return time.UnixMilli(1_700_000_000_000) } })
		r.topicOf(q, 4)
		receipt, err := q.NewProducer(nil).Publish(r.t.Context(), r.topic, Message{
			Key: "k", Payload: []byte("hello"), Headers: map[string]string{HeaderForcePartition: "3"},
		})
		require.NoError(r.t, err)
		require.Equal(r.t, 3, receipt.Partition)
		entries := r.entries(r.source(3).Stream())
		require.Len(r.t, entries, 1)
		require.Equal(r.t, receipt.ID, entries[0].ID)
		fields := entries[0].FieldValues
		headers, err := wire.DecodeHeaders(fields["headers"])
		require.NoError(r.t, err)
		require.Equal(r.t, map[string]string{HeaderUUID: receipt.UUID, HeaderForcePartition: "3"}, headers)
		delete(fields, "headers")
		require.Equal(r.t, map[string]string{
			"payload": "hello", "timestamp": "2023-11-14T22:13:20Z", "retryCount": "0", "maxRetries": "4", "topic": r.topic,
			"partitionId": "3", "key": "k",
		}, fields)
	})
}

func TestBatchKeepsTheOrderOfEachPartition(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 3)
		var messages []Message
		for i := range 300 {
			messages = append(messages, Message{Key: string(rune('a' + i%7)), Payload: []byte{byte(i), byte(i >> 8)}})
		}
		receipts, err := q.NewProducer(nil).PublishBatch(r.t.Context(), r.topic, messages)
		require.NoError(r.t, err)
		total := 0
		for partition := range 3 {
			entries := r.entries(r.source(partition).Stream())
			last := -1
			for _, e := range entries {
				i := int(e.FieldValues["payload"][0]) + int(e.FieldValues["payload"][1])<<8
				require.Greater(r.t, i, last)
				require.Equal(r.t, Receipt{UUID: receipts[i].UUID, Partition: partition, ID: e.ID}, receipts[i])
				last = i
			}
			total += len(entries)
		}
		require.Equal(r.t, 300, total)
		require.Equal(r.t, 300, r.seen.count(EventProduced))
	})
}

func TestRefusedMessageAddsNothingOfItsBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(func(c *Config) { c.MaxPayload = 10 })
	r.topicOf(q, 1)
	_, err := q.NewProducer(nil).PublishBatch(t.Context(), r.topic, []Message{{Payload: []byte("a")}, {Payload: make([]byte, 11)}})
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, "message 1")
	require.ErrorContains(t, err, "at most 10")
	require.Zero(t, r.number("XLEN", r.source(0).Stream()))
}

func TestFullServerIsTold(t *testing.T) {
	t.Parallel()
	r, _ := newPrivateRig(t)
	q := r.mq(nil)
	r.topicOf(q, 1)
	r.do("CONFIG", "SET", "maxmemory", "1")
	for _, size := range []int{10, DefaultInlineMax + 1} {
		_, err := q.NewProducer(nil).Publish(t.Context(), r.topic, Message{Payload: make([]byte, size)})
		require.ErrorIs(t, err, ErrFull)
	}
	r.do("CONFIG", "SET", "maxmemory", "0")
	answer := r.do("KEYS", "*body*")
	keys, err := answer.AsStrSlice()
	require.NoError(t, err)
	require.Empty(t, keys, "no payload without an entry")
}

func TestLargePayloadLiesBesideTheStreamUntilAllGroupsAreDone(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, s, ctx := r.mq(nil), r.source(0), r.t.Context()
		r.topicOf(q, 1)
		large := strings.Repeat("x", DefaultInlineMax+1)
		receipts := r.publish(q, "", large, "", "small")
		require.Equal(r.t, large, r.text("GET", s.Body(receipts[0].UUID)))
		require.Less(r.t, r.number("MEMORY", "USAGE", s.Stream()), len(large))

		for _, group := range []string{"a", "b"} {
			r.do("XGROUP", "CREATE", s.Stream(), group, "0")
			r.do("XREADGROUP", "GROUP", group, "c", "STREAMS", s.Stream(), ">")
		}
		r.do("XACK", s.Stream(), "a", receipts[0].ID)
		_, err := q.Trim(ctx, r.topic, Retention{})
		require.NoError(r.t, err)
		require.Equal(r.t, 1, r.number("EXISTS", s.Body(receipts[0].UUID)), "one group is not done")
		r.do("XACK", s.Stream(), "b", receipts[0].ID)
		// The border is the next entry; ids of the same millisecond wait for a later one.
		for _, group := range []string{"a", "b"} {
			r.do("XACK", s.Stream(), group, receipts[1].ID)
		}
		later := r.text("XADD", s.Stream(), "*", "payload", "p")
		for strings.HasPrefix(later, receipts[0].ID[:strings.Index(receipts[0].ID, "-")]) {
			later = r.text("XADD", s.Stream(), "*", "payload", "p")
		}
		for _, group := range []string{"a", "b"} {
			r.do("XGROUP", "SETID", s.Stream(), group, later)
		}
		_, err = q.Trim(ctx, r.topic, Retention{})
		require.NoError(r.t, err)
		require.Zero(r.t, r.number("EXISTS", s.Body(receipts[0].UUID)))
		require.Zero(r.t, r.number("EXISTS", s.Bodies()))
	})
}

// A group that was given nothing needs all there is.
func TestTrimForAGroupThatReadNothing(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		r.publish(q, "k", "0", "k", "1", "k", "2")
		r.do("XGROUP", "CREATE", r.source(0).Stream(), "g", "0")
		n, err := q.Trim(r.t.Context(), r.topic, Retention{MaxLen: 1})
		require.NoError(r.t, err)
		require.Zero(r.t, n)
		require.Len(r.t, r.entries(r.source(0).Stream()), 3)
	})
}

func TestRetentionDropsNothingThatAGroupHasNotFinished(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, s, ctx := r.mq(nil), r.source(0), r.t.Context()
		r.topicOf(q, 1)
		var pairs []string
		for range 20 {
			pairs = append(pairs, "", "p")
		}
		receipts := r.publish(q, pairs...)
		r.do("XGROUP", "CREATE", s.Stream(), "a", "0")
		r.do("XGROUP", "CREATE", s.Stream(), "slow", receipts[14].ID)
		r.do("XREADGROUP", "GROUP", "a", "c", "STREAMS", s.Stream(), ">")
		for i, receipt := range receipts {
			if i != 11 {
				r.do("XACK", s.Stream(), "a", receipt.ID)
			}
		}
		trimmed := func(keep int, want int) {
			r.t.Helper()
			n, err := q.Trim(ctx, r.topic, Retention{MaxLen: keep})
			require.NoError(r.t, err)
			require.Equal(r.t, want, n)
		}
		trimmed(15, 5) // by length
		trimmed(1, 6)  // up to the pending one
		trimmed(1, 0)
		r.do("XACK", s.Stream(), "a", receipts[11].ID)
		trimmed(1, 4) // up to what the slow group has not read
		n, err := q.Trim(ctx, r.topic, Retention{MaxAge: time.Hour})
		require.NoError(r.t, err)
		require.Zero(r.t, n, "younger than that")
		r.do("XGROUP", "SETID", s.Stream(), "slow", "$")
		eventually(r.t, func() bool {
			_, err := q.Trim(ctx, r.topic, Retention{MaxAge: time.Millisecond})
			return err == nil && r.number("XLEN", s.Stream()) == 0
		}, "all are finished and too old")
	})
}

func TestRetentionWithoutAGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 2)
	n, err := q.Trim(t.Context(), r.topic, Retention{MaxLen: 1})
	require.NoError(t, err)
	require.Zero(t, n, "a missing stream is fine")
	var pairs []string
	for range stream.TrimPortion + 100 {
		pairs = append(pairs, "same", "p")
	}
	r.publish(q, pairs...)
	n, err = q.Trim(t.Context(), r.topic, Retention{MaxLen: 10})
	require.NoError(t, err)
	require.Equal(t, stream.TrimPortion+90, n)
}
