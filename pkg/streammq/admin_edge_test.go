package streammq

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What an operator asks of a topic that is not there is refused with its name, and makes no key.
func TestAdminOfAnUnknownTopic(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		a := q.Admin(r.topic)
		for name, ask := range map[string]func() error{
			"topic":       func() error { _, err := q.Topic(ctx, r.topic); return err },
			"partitions":  func() error { _, err := q.Partitions(ctx, r.topic); return err },
			"stats":       func() error { _, err := a.Stats(ctx); return err },
			"groups":      func() error { _, err := a.Groups(ctx); return err },
			"group stats": func() error { _, err := a.GroupStats(ctx, "g"); return err },
			"owners":      func() error { _, err := a.Owners(ctx, "g"); return err },
			"in flight":   func() error { _, err := a.InFlight(ctx, "g"); return err },
			"range":       func() error { _, err := a.Range(ctx, 0, "-", "+", 1); return err },
			"recent":      func() error { _, err := a.Recent(ctx, 1); return err },
			"trim":        func() error { _, err := a.Trim(ctx, Retention{MaxLen: 1}, false); return err },
			"trim by age": func() error { _, err := q.Trim(ctx, r.topic, Retention{MaxAge: time.Hour}); return err },
			"pending":     func() error { _, err := a.Pending(ctx, "g", PendingQuery{Order: PendingByDeliveries}); return err },
			"older":       func() error { _, err := a.Older(ctx, 0, "1-1", 1); return err },
			"reset":       func() error { _, err := a.ResetGroup(ctx, "g", Reset{To: PositionEnd(), Partition: -1}); return err },
			"delete":      func() error { return a.Delete(ctx, Removal{}) },
			"delete it":   func() error { return a.DeleteGroup(ctx, "g", Removal{}) },
			"publish":     func() error { _, err := q.NewProducer(nil).Publish(ctx, r.topic, Message{}); return err },
		} {
			err := ask()
			require.ErrorIs(r.t, err, ErrUnknownTopic, name)
			require.ErrorContains(r.t, err, r.topic, name)
		}
		require.Empty(r.t, r.allKeys("*"+r.topic+"*"))
	})
}

// Each group has a frontier of its own, which moves as it acknowledges; a trim keeps what the slower one needs.
func TestFrontiersOfTwoGroups(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx, s := r.mq(nil), r.t.Context(), r.source(0)
		r.topicOf(q, 1)
		var pairs []string
		for i := range 4 {
			pairs = append(pairs, "k", strconv.Itoa(i))
		}
		r.publish(q, pairs...)
		ids := r.entries(s.Stream())
		for group, finished := range map[string]int{"fast": 3, "slow": 1} {
			r.do("XGROUP", "CREATE", s.Stream(), group, "0")
			r.do("XREADGROUP", "GROUP", group, "c", "STREAMS", s.Stream(), ">")
			for i := range finished {
				r.do("XACK", s.Stream(), group, ids[i].ID)
			}
			stats, err := q.GroupStats(ctx, r.topic, group)
			require.NoError(r.t, err)
			require.Equal(r.t, ids[finished].ID, stats[0].Frontier, group)
		}
		n, err := q.Trim(ctx, r.topic, Retention{Finished: true})
		require.NoError(r.t, err)
		require.Equal(r.t, 1, n)
	})
}

// Without a policy of deletion and within the retention finished entries stay, for a group that comes later.
func TestFinishedEntriesStayByDefault(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, late := r.mq(nil), &log{}, &log{}
		r.topicOf(q, 1)
		r.publish(q, "k", "0", "k", "1")
		r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.TrimEvery = 10 * time.Millisecond })
		eventually(r.t, func() bool { return len(seen.all()) == 2 && r.pending(0, "g") == 0 }, "finished")
		require.Equal(r.t, 2, r.number("XLEN", r.source(0).Stream()))
		r.subscribe(q, late.handler(succeed), func(c *SubscriberConfig) { c.Group = "late" })
		eventually(r.t, func() bool { return len(late.all()) == 2 }, "the later group has both")
	})
}

// A trim by age takes what is old enough, and counts it.
func TestTrimByAgeTakesWhatIsOld(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, s := r.mq(nil), r.source(0)
		r.topicOf(q, 1)
		now := time.UnixMilli(int64(r.number("EVAL", "local t = redis.call('TIME') return t[1] * 1000", "1", s.Stream())))
		for _, ago := range []time.Duration{3 * time.Hour, 2 * time.Hour, time.Minute} {
			r.do("XADD", s.Stream(), strconv.FormatInt(now.Add(-ago).UnixMilli(), 10)+"-0", "payload", "x")
		}
		for i, want := range []int{2, 0} {
			n, err := q.Trim(context.Background(), r.topic, Retention{MaxAge: time.Hour})
			require.NoError(r.t, err)
			require.Equal(r.t, want, n, "trim %d", i)
		}
		require.Equal(r.t, 1, r.number("XLEN", s.Stream()))
	})
}

// Pausing twice is pausing once, and what runs goes on.
func TestPauseTwiceWhileAMessageRuns(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		began, release := make(chan struct{}), make(chan struct{})
		m := r.subscribe(q, seen.handler(func(d *Delivery) Result {
			if string(d.Payload) == "0" {
				close(began)
				<-release
			}
			return Success()
		}), func(c *SubscriberConfig) { c.Batch = 1 })
		r.publish(q, "k", "0")
		<-began
		m.Pause()
		m.Pause()
		close(release)
		eventually(r.t, func() bool { return r.pending(0, "g") == 0 }, "it ends")
		eventually(r.t, func() bool { return idle(m.Subscriber) }, "and rests")
		r.publish(q, "k", "1")
		require.Never(r.t, func() bool { return len(seen.all()) > 1 }, 100*time.Millisecond, 10*time.Millisecond)
		m.Resume()
		m.Resume()
		eventually(r.t, func() bool { return len(seen.all()) == 2 }, "it goes on")
	})
}

// How much is shown has bounds, and places that are not there are named.
func TestBoundsOfALook(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 2)
		a := q.Admin(r.topic)
		for i := range 2 {
			r.do("EVAL", "for i = 1, 600 do redis.call('XADD', KEYS[1], i .. '-1', 'payload', 'x') end", "1", r.source(i).Stream())
		}
		for limit, want := range map[int]int{-1: 100, 0: 100, 1: 1, 700: 700, 10_000: 1000} {
			recent, err := a.Recent(ctx, limit)
			require.NoError(r.t, err)
			require.Len(r.t, recent, want, "%d", limit)
			require.Equal(r.t, []any{0, "600-1"}, []any{recent[0].Partition, recent[0].ID})
			some, err := a.Range(ctx, 1, "-", "+", limit)
			require.NoError(r.t, err)
			require.Len(r.t, some, min(want, 600), "%d", limit)
			require.Equal(r.t, []any{1, "1-1"}, []any{some[0].Partition, some[0].ID})
		}
		none, err := a.Range(ctx, 0, "+", "-", 0)
		require.NoError(r.t, err)
		require.Empty(r.t, none, "an end before its beginning")
		for _, partition := range []int{-1, 2} {
			_, err := a.Range(ctx, partition, "-", "+", 0)
			require.ErrorIs(r.t, err, ErrPartition)
			require.ErrorContains(r.t, err, "0 to 1")
		}
		for _, id := range []string{"", "x"} {
			_, err := a.Range(ctx, 0, id, "+", 0)
			require.ErrorIs(r.t, err, ErrEntryID, "%q", id)
		}
	})
}

// A trim counts over all partitions, each of which keeps as many; observers hear of what went, and of nothing else.
func TestTrimOfAllPartitions(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 3)
		_, err := q.NewProducer(NewRoundRobin()).PublishBatch(ctx, r.topic, make([]Message, 30))
		require.NoError(r.t, err)
		parts, err := q.Admin(r.topic).Trim(ctx, Retention{MaxLen: 4}, true)
		require.NoError(r.t, err)
		require.Equal(r.t, []PartitionTrim{{Entries: 6}, {Partition: 1, Entries: 6}, {Partition: 2, Entries: 6}}, parts)
		require.Zero(r.t, r.seen.count(EventTrimmed), "a dry run")
		for _, want := range []int{18, 0} {
			n, err := q.Trim(ctx, r.topic, Retention{MaxLen: 4})
			require.NoError(r.t, err)
			require.Equal(r.t, want, n)
			require.Equal(r.t, 18, r.seen.count(EventTrimmed))
		}
		for i := range 3 {
			require.Equal(r.t, 4, r.number("XLEN", r.source(i).Stream()))
		}
		for _, bad := range []Retention{{MaxLen: -100}, {MaxAge: -time.Second}} {
			_, err := q.Trim(ctx, r.topic, bad)
			require.ErrorIs(r.t, err, ErrConfig)
			require.ErrorContains(r.t, err, "must not be negative")
			_, err = q.Letters(r.topic).Trim(ctx, bad)
			require.ErrorIs(r.t, err, ErrConfig)
		}
		n, err := q.Trim(ctx, r.topic, Retention{})
		require.NoError(r.t, err)
		require.Zero(r.t, n, "it keeps all")
	})
}

func TestPendingInAnUnknownOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 1)
	r.do("XGROUP", "CREATE", r.source(0).Stream(), "g", "0")
	_, err := q.Pending(t.Context(), r.topic, "g", PendingQuery{Order: "id"})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, `"id"`)
	for _, order := range []PendingOrder{"", PendingByIdle, PendingByDeliveries} {
		none, err := q.Pending(t.Context(), r.topic, "g", PendingQuery{Order: order, Offset: -1, Limit: -1})
		require.NoError(t, err)
		require.Empty(t, none)
	}
}

// A group that lacks on some partition, which is new, is set there too: what comes before the position is finished.
func TestResetOfAGroupThatLacksOnAPartition(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 3)
		for i := range 3 {
			r.do("XADD", r.source(i).Stream(), "*", "payload", "before")
		}
		r.do("XGROUP", "CREATE", r.source(1).Stream(), "g", "0")
		a := q.Admin(r.topic)
		_, err := a.ResetGroup(ctx, "g", Reset{To: PositionEnd(), Partition: 2})
		require.ErrorIs(r.t, err, ErrNotFound, "on that one")
		_, err = a.ResetGroup(ctx, "g", Reset{To: PositionEnd(), Partition: -1})
		require.NoError(r.t, err)
		r.subscribe(q, seen.handler(succeed), nil)
		for i := range 3 {
			r.do("XADD", r.source(i).Stream(), "*", "payload", "after")
		}
		eventually(r.t, func() bool { return len(seen.all()) == 3 }, "what comes after it")
		require.Equal(r.t, []string{"after", "after", "after"}, seen.payloads())
	})
}

// A group goes from every partition that has it.
func TestGroupIsDeletedFromEachPartition(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 3)
		for i := range 3 {
			r.do("XGROUP", "CREATE", r.source(i).Stream(), "stays", "0")
			if i != 0 {
				r.do("XGROUP", "CREATE", r.source(i).Stream(), "g", "0")
			}
		}
		require.NoError(r.t, q.Admin(r.topic).DeleteGroup(ctx, "g", Removal{}))
		groups, err := q.Admin(r.topic).Groups(ctx)
		require.NoError(r.t, err)
		require.Equal(r.t, []GroupInfo{{Name: "stays", Partitions: 3, LagExact: true}}, groups)
		for i := range 3 {
			require.Equal(r.t, -1, r.pending(i, "g"))
		}
	})
}
