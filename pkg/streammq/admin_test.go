package streammq

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/admin"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
)

func TestGroupStats(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 2)
		a := r.member(q, "a") // of partition 0
		_, err := q.GroupStats(ctx, r.topic, "g")
		require.ErrorIs(r.t, err, ErrNotFound, "no group on partition 1")
		r.do("XGROUP", "CREATE", r.source(1).Stream(), "g", "0", "MKSTREAM")
		none, err := q.GroupStats(ctx, r.topic, "g")
		require.NoError(r.t, err)
		require.Equal(r.t, []PartitionStats{
			{Owner: "a", Epoch: a.Epoch, LagExact: true, LastDelivered: none[0].LastDelivered}, // the emulator's is 0
			{Partition: 1, LagExact: true, LastDelivered: none[1].LastDelivered},
		}, none)
		to := func(partition, n int) {
			for range n {
				_, err := q.NewProducer(nil).Publish(ctx, r.topic, Message{Headers: map[string]string{HeaderForcePartition: strconv.Itoa(partition)}})
				require.NoError(r.t, err)
			}
		}
		to(0, 12)
		to(1, 3)
		got := r.next(a) // 10 of 12
		_, err = a.Ack(ctx, []fence.Held{of(got.Entries[0]), of(got.Entries[1])})
		require.NoError(r.t, err)
		_, err = a.RetryInPlace(ctx, of(got.Entries[2]), 1, time.Hour)
		require.NoError(r.t, err)

		stats, err := q.GroupStats(ctx, r.topic, "g")
		require.NoError(r.t, err)
		require.Equal(r.t, []PartitionStats{
			{
				Owner: "a", Epoch: a.Epoch, Length: 12, Lag: 2, LagExact: true, Pending: 8, Due: 1, Consumers: 1,
				LastDelivered: got.Entries[9].Id, Frontier: got.Entries[2].Id, FrontierAge: stats[0].FrontierAge,
			},
			{
				Partition: 1, Length: 3, Lag: 3, LagExact: true, LastDelivered: none[1].LastDelivered,
				Frontier: r.entries(r.source(1).Stream())[0].ID, FrontierAge: stats[1].FrontierAge,
			},
		}, stats)
		// After a deletion the server cannot tell any more, and the entries are counted.
		r.do("XDEL", a.Src.Stream(), r.entries(a.Src.Stream())[10].ID)
		stats, err = q.GroupStats(ctx, r.topic, "g")
		require.NoError(r.t, err)
		require.EqualValues(r.t, 1, stats[0].Lag)
		require.True(r.t, stats[0].LagExact, "all were counted")
	})
}

func TestLagIsCountedUpToABound(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx, s := r.mq(nil), r.t.Context(), r.source(0)
		r.topicOf(q, 1)
		for range admin.LagCounted / 1000 {
			r.do("EVAL", "for i = 1, 1000 do redis.call('XADD', KEYS[1], '*', 'payload', 'x') end", "1", s.Stream())
		}
		for range 2 {
			r.do("XADD", s.Stream(), "*", "payload", "x")
		}
		r.do("XGROUP", "CREATE", s.Stream(), "g", "0")
		lag := func() (int64, bool) {
			stats, err := q.GroupStats(ctx, r.topic, "g")
			require.NoError(r.t, err)
			return stats[0].Lag, stats[0].LagExact
		}
		n, exact := lag()
		require.EqualValues(r.t, admin.LagCounted+2, n)
		require.True(r.t, exact, "of nothing it is the stream's length")
		r.do("XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", s.Stream(), ">")
		r.do("XDEL", s.Stream(), r.entries(s.Stream())[1].ID)
		n, exact = lag()
		require.EqualValues(r.t, admin.LagCounted, n)
		require.False(r.t, exact)
	})
}

// The frontier is the oldest entry that the group has not finished, its age is by the server's clock.
func TestFrontierAndItsAge(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx, s := r.mq(nil), r.t.Context(), r.source(0)
		r.topicOf(q, 1)
		now := time.UnixMilli(int64(r.number("EVAL", "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)", "1", s.Stream())))
		at := func(ago time.Duration) string { return strconv.FormatInt(now.Add(-ago).UnixMilli(), 10) + "-0" }
		ids := []string{at(time.Hour), at(time.Minute), at(0)}
		for _, id := range ids {
			r.do("XADD", s.Stream(), id, "payload", "x")
		}
		r.do("XGROUP", "CREATE", s.Stream(), "g", "0")
		want := func(id string, age time.Duration) {
			r.t.Helper()
			stats, err := q.GroupStats(ctx, r.topic, "g")
			require.NoError(r.t, err)
			require.Equal(r.t, id, stats[0].Frontier)
			require.GreaterOrEqual(r.t, stats[0].FrontierAge, age)
			require.Less(r.t, stats[0].FrontierAge, age+30*time.Minute)
		}
		want(ids[0], time.Hour)
		r.do("XREADGROUP", "GROUP", "g", "c", "COUNT", "2", "STREAMS", s.Stream(), ">")
		want(ids[0], time.Hour)
		r.do("XACK", s.Stream(), "g", ids[0])
		want(ids[1], time.Minute)
		r.do("XACK", s.Stream(), "g", ids[1])
		want(ids[2], 0)
		r.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", s.Stream(), ">")
		r.do("XACK", s.Stream(), "g", ids[2])
		stats, err := q.GroupStats(ctx, r.topic, "g")
		require.NoError(r.t, err)
		require.Zero(r.t, stats[0].Frontier)
		require.Zero(r.t, stats[0].FrontierAge)
	})
}

func TestPendingOfAllPartitionsIsMerged(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 3)
		_, err := q.Pending(ctx, r.topic, "g", PendingQuery{})
		require.ErrorIs(r.t, err, ErrNotFound)
		_, err = q.NewProducer(NewRoundRobin()).PublishBatch(ctx, r.topic, make([]Message, 9))
		require.NoError(r.t, err)
		for i := range 3 {
			stream := r.source(i).Stream()
			r.do("XGROUP", "CREATE", stream, "g", "0")
			r.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", stream, ">")
			for j, e := range r.entries(stream) {
				n := 10*j + i
				r.do("XCLAIM", stream, "g", "c", "0", e.ID, "IDLE", strconv.Itoa(1_000_000*(n+1)), "RETRYCOUNT", strconv.Itoa(100-n))
			}
		}
		list, err := q.Pending(ctx, r.topic, "g", PendingQuery{Limit: 4})
		require.NoError(r.t, err)
		require.Len(r.t, list, 4)
		require.Equal(r.t, []int{2, 1, 0, 2}, []int{list[0].Partition, list[1].Partition, list[2].Partition, list[3].Partition})
		require.GreaterOrEqual(r.t, list[0].Idle, 23_000*time.Second)
		rest, err := q.Pending(ctx, r.topic, "g", PendingQuery{Offset: 4})
		require.NoError(r.t, err)
		require.Len(r.t, rest, 5)
		most, err := q.Pending(ctx, r.topic, "g", PendingQuery{Order: PendingByDeliveries, Limit: 2})
		require.NoError(r.t, err)
		require.Equal(r.t, []int64{100, 99}, []int64{most[0].Deliveries, most[1].Deliveries})
		idle, err := q.Pending(ctx, r.topic, "g", PendingQuery{Idle: 20_000 * time.Second})
		require.NoError(r.t, err)
		require.Len(r.t, idle, 3)
	})
}

func (r *rig) names(stream, group string) []string {
	r.t.Helper()
	list, err := r.client.Do(r.t.Context(), r.client.B().XinfoConsumers().Key(stream).Group(group).Build()).ToArray()
	require.NoError(r.t, err)
	var names []string
	for i := range list {
		info, err := list[i].AsMap()
		require.NoError(r.t, err)
		name := info["name"]
		text, err := name.ToString()
		require.NoError(r.t, err)
		names = append(names, text)
	}
	return names
}

func TestNamesOfDeadConsumersAreRemoved(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		stream := r.source(0).Stream()
		r.do("XGROUP", "CREATE", stream, "g", "0", "MKSTREAM")
		r.do("XGROUP", "CREATECONSUMER", stream, "g", "dead")
		dry := r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) {
			c.Janitor = JanitorConfig{Interval: 20 * time.Millisecond, DryRun: true}
		})
		r.publish(q, "", "0")
		eventually(r.t, func() bool { return r.seen.count(EventZombie) > 0 && r.seen.count(EventAcked) == 1 }, "found")
		require.ElementsMatch(r.t, []string{"dead", dry.Name()}, r.names(stream, "g"), "a dry run removes nothing")
		dry.end()
		require.Equal(r.t, []string{"dead"}, r.names(stream, "g"), "who leaves in order takes its name along")

		m := r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) {
			c.Janitor = JanitorConfig{Interval: 20 * time.Millisecond}
		})
		r.publish(q, "", "1")
		eventually(r.t, func() bool { return len(seen.all()) == 2 && len(r.names(stream, "g")) == 1 }, "the dead one's name is gone")
		require.Equal(r.t, []string{m.Name()}, r.names(stream, "g"))
	})
}

// Nothing that a consumer holds is lost with its name, and young or busy ones stay.
func TestJanitorMovesWhatTheDeadHold(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		for _, role := range []Role{RoleMain, RoleClaim, RoleBoth} {
			one, seen := r.another(), &log{}
			stream := one.topic + "-tasks"
			one.addSingle("0", "1", "2")
			one.do("XGROUP", "CREATE", stream, "workers", "0")
			one.do("XREADGROUP", "GROUP", "workers", "busy", "COUNT", "2", "STREAMS", stream, ">")
			one.do("XREADGROUP", "GROUP", "workers", "dead", "COUNT", "1", "STREAMS", stream, ">")
			one.single(q, "live", role, seen.handler(succeed), func(c *SubscriberConfig) {
				c.Janitor = JanitorConfig{Interval: 20 * time.Millisecond, MaxPending: 1, MinIdle: 50 * time.Millisecond}
				c.ClaimIdle = time.Hour
			})
			eventually(r.t, func() bool { return len(seen.all()) == 1 }, "%s: what the dead had is run at once", role)
			require.Equal(r.t, []string{"2"}, seen.payloads())
			require.NotContains(r.t, one.names(stream, "workers"), "dead")
			require.Contains(r.t, one.names(stream, "workers"), "busy")
			eventually(r.t, func() bool { return one.pendingOf(stream, "workers") == 2 }, "%s: it is acknowledged", role)
		}
	})
}
