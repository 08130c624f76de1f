package streammq

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/fence"
)

// Entries go with their acknowledgement, their retry or their dead letter, while the stream has one group.
func TestDeleteImmediately(t *testing.T) {
	onBothModes(t, func(r *rig, mode func(*SubscriberConfig)) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		stream := r.source(0).Stream()
		r.publish(q, "k", "good", "k", "bad", "k", "again")
		r.subscribe(q, seen.handler(func(d *Delivery) Result {
			switch {
			case string(d.Payload) == "bad":
				return Fail(errBoom)
			case string(d.Payload) == "again" && d.Attempt == 1:
				return RetryAfter(0, errBoom)
			}
			return Success()
		}), func(c *SubscriberConfig) {
			mode(c)
			c.Delete = DeleteImmediately
		})
		eventually(r.t, func() bool { return len(seen.all()) == 4 && r.number("XLEN", stream) == 0 }, "all are deleted")
		require.Equal(r.t, 1, r.number("XLEN", r.source(0).Dlq()), "the dead letter has its payload in itself")
		// With another group nothing is deleted by this one.
		r.do("XGROUP", "CREATE", stream, "late", "$")
		r.publish(q, "k", "kept")
		eventually(r.t, func() bool { return len(seen.all()) == 5 && r.pending(0, "g") == 0 }, "it is run")
		require.Never(r.t, func() bool { return r.number("XLEN", stream) == 0 }, 100*time.Millisecond, 20*time.Millisecond)
		got := ask(r.t, r.client, "XREADGROUP", "GROUP", "late", "c", "STREAMS", stream, ">")
		require.NoError(r.t, got.Error(), "it is there for the other")
	})
}

// With several groups an entry goes when the last of them has finished it, pulled or pushed.
func TestDeleteWhenAllGroupsHaveFinished(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 1)
		stream := r.source(0).Stream()
		r.do("XGROUP", "CREATE", stream, "slow", "0")
		r.publish(q, "k", "0", "k", "1", "k", "2")
		ids := r.entries(stream)
		r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.Delete = DeleteWhenAllFinish })
		eventually(r.t, func() bool { return len(seen.all()) == 3 && r.pending(0, "g") == 0 }, "one group has finished")
		require.Len(r.t, r.entries(stream), 3, "the other was not given them")
		slow := r.consumer(q, func(c *ConsumerConfig) { c.Group, c.Delete = "slow", DeleteWhenAllFinish })
		got := slow.poll(3)
		require.Len(r.t, r.entries(stream), 3, "they are pending")
		r.count(2)(slow.Ack(ctx, got[0], got[2]))
		left := r.entries(stream)
		require.Len(r.t, left, 1)
		require.Equal(r.t, ids[1].ID, left[0].ID)
		require.NoError(r.t, got[1].Reject(ctx, errBoom))
		require.Empty(r.t, r.entries(stream))
		// In the other order: the group that polls is the first.
		r.publish(q, "k", "3")
		got = slow.poll(1)
		require.NoError(r.t, got[0].Ack(ctx))
		eventually(r.t, func() bool { return len(r.entries(stream)) == 0 }, "by whoever is the last")
	})
}

// A payload beside the stream goes with the next trim after its entry.
func TestDeletedEntriesLeaveNoPayloadBehind(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		r.publish(q, "k", strings.Repeat("x", DefaultInlineMax+1))
		s := r.source(0)
		require.Equal(r.t, 1, r.number("ZCARD", s.Bodies()))
		c := r.subscribe(q, (&log{}).handler(succeed), func(c *SubscriberConfig) {
			c.Delete, c.Retention, c.TrimEvery = DeleteImmediately, Retention{}, 20*time.Millisecond
		})
		eventually(r.t, func() bool { return r.number("XLEN", s.Stream()) == 0 }, "deleted")
		r.publish(q, "k", "a later one") // bodies of the frontier's millisecond wait for it to move on
		eventually(r.t, func() bool { return r.number("ZCARD", s.Bodies()) == 0 }, "the payload too")
		c.end()
	})
}

// Who publishes may trim: a topic that nobody consumes does not grow without end, and a group loses nothing.
func TestProducersTrim(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 2)
		p, err := q.NewProducer(nil).Trimming(Retention{MaxLen: 10}, 5)
		require.NoError(r.t, err)
		publish := func(n int) {
			for i := range n {
				_, err := p.Publish(ctx, r.topic, Message{Headers: map[string]string{HeaderForcePartition: strconv.Itoa(i % 2)}})
				require.NoError(r.t, err)
			}
		}
		publish(100)
		for i := range 2 {
			require.Equal(r.t, 10, r.number("XLEN", r.source(i).Stream()))
		}
		r.do("XGROUP", "CREATE", r.source(0).Stream(), "g", "0")
		publish(100)
		require.Equal(r.t, 60, r.number("XLEN", r.source(0).Stream()), "what a group has not finished stays")
		require.Equal(r.t, 10, r.number("XLEN", r.source(1).Stream()))
		single, err := q.NewStreamProducer(r.topic+"-tasks", false)
		require.NoError(r.t, err)
		single, err = single.Trimming(Retention{MaxLen: 3}, 1)
		require.NoError(r.t, err)
		_, err = single.Publish(ctx, make([]Message, 8)...)
		require.NoError(r.t, err)
		require.Equal(r.t, 3, r.number("XLEN", r.topic+"-tasks"))
	})
	p := (&MQ{}).NewProducer(nil)
	for _, bad := range []func() error{
		func() error { _, err := p.Trimming(Retention{}, 1); return err },
		func() error { _, err := p.Trimming(Retention{MaxLen: -1}, 1); return err },
		func() error { _, err := p.Trimming(Retention{MaxLen: 1}, 0); return err },
	} {
		require.ErrorIs(t, bad(), ErrConfig)
	}
}

// Dead letters are kept by a retention of their own, with the marks of those that were replayed.
func TestDeadLettersHaveARetention(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 1)
		var pairs []string
		for i := range 12 {
			pairs = append(pairs, "k", strconv.Itoa(i))
		}
		r.publish(q, pairs...)
		sick := r.subscribe(q, (&log{}).handler(func(*Delivery) Result { return DeadLetter(errBoom) }), nil)
		eventually(r.t, func() bool { return r.seen.count(EventDead) == 12 }, "all dead")
		sick.end()
		letters, s := q.Letters(r.topic), r.source(0)
		list, err := letters.List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		for _, i := range []int{1, 10} {
			_, err = letters.Replay(ctx, list[i])
			require.NoError(r.t, err)
		}
		n, err := letters.Trim(ctx, Retention{MaxLen: 8})
		require.NoError(r.t, err)
		require.Equal(r.t, 4, n)
		left, err := letters.List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Equal(r.t, list[4].ID, left[0].ID)
		require.Equal(r.t, 1, r.number("HLEN", s.Replayed()), "the mark of the dead letter that is there")
		// A group that consumes letters loses none, and the members trim by themselves.
		r.do("XGROUP", "CREATE", s.Dlq(), "mails", left[2].ID)
		r.subscribe(q, (&log{}).handler(succeed), func(c *SubscriberConfig) {
			c.DeadLetterRetention, c.TrimEvery = Retention{MaxAge: time.Nanosecond}, 20*time.Millisecond
		})
		eventually(r.t, func() bool { return r.number("XLEN", s.Dlq()) == 5 }, "up to what the group has not been given")
		r.do("XGROUP", "DESTROY", s.Dlq(), "mails")
		eventually(r.t, func() bool { return r.number("XLEN", s.Dlq()) == 0 && r.number("HLEN", s.Replayed()) == 0 }, "all")
	})
}

// Letters in a stream of another name have the retention of who writes them.
func TestNamedDeadLettersHaveARetention(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, named := r.mq(nil), r.topic+"-letters"
		r.topicOf(q, 1)
		r.subscribe(q, (&log{}).handler(func(*Delivery) Result { return DeadLetter(errBoom) }), func(c *SubscriberConfig) {
			c.DeadLetterStream, c.DeadLetterRetention, c.TrimEvery = named, Retention{MaxLen: 2}, 20*time.Millisecond
		})
		r.publish(q, "k", "0", "k", "1", "k", "2", "k", "3", "k", "4")
		eventually(r.t, func() bool { return r.seen.count(EventDead) == 5 && r.number("XLEN", named) == 2 }, "the last two")
	})
}

// A process that dies after its acknowledgement and before the deletion leaves an entry to retention, and loses none.
func TestAFailedDeletionIsLeftToRetention(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		m := r.member(q, "a")
		m.Deletes = DeleteImmediately
		r.publish(q, "k", "0")
		got := r.next(m)
		ctx, cancel := context.WithCancel(r.t.Context())
		n, err := m.Ack(ctx, []fence.Held{of(got.Entries[0])})
		require.NoError(r.t, err)
		require.Equal(r.t, 1, n)
		require.Zero(r.t, r.number("XLEN", m.Src.Stream()))
		cancel()
		r.publish(q, "k", "1")
		got = r.next(m)
		m.Deletes = DeleteNever
		_, err = m.Ack(r.t.Context(), []fence.Held{of(got.Entries[0])})
		require.NoError(r.t, err)
		m.Deletes = DeleteImmediately
		m.Drop(ctx, of(got.Entries[0])) // it cannot
		require.Equal(r.t, 1, r.number("XLEN", m.Src.Stream()))
		n, err = q.Trim(r.t.Context(), r.topic, Retention{Finished: true})
		require.NoError(r.t, err)
		require.Equal(r.t, 1, n)
	})
	require.True(t, errors.Is(SubscriberConfig{Delete: "some"}.Validate(), ErrConfig))
}
