package streammq

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// consumed publishes 6 messages to one partition and lets group "g" finish 0, put off 1 in place and 2 by republishing,
// and keep 3 pending; 4 and 5 it was not given.
func (r *rig) consumed(q *MQ) (*fence.Reader, []Receipt) {
	r.t.Helper()
	ctx := r.t.Context()
	r.topicOf(q, 1)
	m := r.member(q, "m")
	var receipts []Receipt
	for i := range 6 {
		receipts = append(receipts, r.publish(q, "k", strconv.Itoa(i))...)
	}
	got, err := m.Fetch(ctx, 4)
	require.NoError(r.t, err)
	_, err = m.Ack(ctx, []fence.Held{of(got.Entries[0])})
	require.NoError(r.t, err)
	_, err = m.RetryInPlace(ctx, of(got.Entries[1]), 1, time.Hour)
	require.NoError(r.t, err)
	parcels, err := m.Unpack(ctx, got.Entries)
	require.NoError(r.t, err)
	_, err = m.RetryLater(ctx, of(got.Entries[2]), parcels[2].Entry, 1, time.Hour)
	require.NoError(r.t, err)
	return m, receipts
}

func TestResetGroupGoesOnAfterThePosition(t *testing.T) {
	after := func(i int) func(r []Receipt) Position {
		return func(r []Receipt) Position {
			p, err := PositionAfter(r[i].ID)
			if err != nil {
				panic(err)
			}
			return p
		}
	}
	for name, test := range map[string]struct {
		to   func(r []Receipt) Position
		want []string
	}{
		"start":        {func([]Receipt) Position { return PositionStart() }, []string{"0", "1", "2", "3", "4", "5"}},
		"end":          {func([]Receipt) Position { return PositionEnd() }, nil},
		"an id":        {after(3), []string{"4", "5"}},
		"the last id":  {after(5), nil},
		"time of old":  {func([]Receipt) Position { return PositionTime(time.UnixMilli(0)) }, []string{"0", "1", "2", "3", "4", "5"}},
		"time to come": {func([]Receipt) Position { return PositionTime(time.Now().Add(time.Hour)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onBothLayouts(t, func(r *rig) {
				q, ctx := r.mq(nil), r.t.Context()
				old, receipts := r.consumed(q)
				a := q.Admin(r.topic)
				_, err := a.ResetGroup(ctx, "g", Reset{To: test.to(receipts), Partition: -1})
				require.ErrorIs(r.t, err, ErrGroupLive, "the partition has an owner")
				require.Equal(r.t, 2, r.pending(0, "g"), "nothing was done")
				n, err := a.ResetGroup(ctx, "g", Reset{To: test.to(receipts), Partition: -1, Force: true})
				require.NoError(r.t, err)
				require.Equal(r.t, 2, n)
				require.Zero(r.t, r.pending(0, "g"))
				for _, key := range []string{old.Src.Due("g"), old.Src.Attempts("g"), old.Src.Lease("g")} {
					require.Zero(r.t, r.number("EXISTS", key), key)
				}
				require.Equal(r.t, 1, r.number("ZCARD", old.Src.Retry()), "what waits apart stays")
				_, err = old.Fetch(ctx, 10)
				require.ErrorIs(r.t, err, fence.ErrLost, "the old owner reads nothing more")
				var payloads []string
				for _, e := range r.next(r.member(q, "m")).Entries {
					entry, err := wire.DecodeEntry(e.Fields)
					require.NoError(r.t, err)
					require.EqualValues(r.t, 1, e.Deliveries)
					payloads = append(payloads, string(entry.Payload))
				}
				require.Equal(r.t, test.want, payloads)
			})
		})
	}
}

func TestResetGroupIsRefused(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		a := q.Admin(r.topic)
		_, err := a.ResetGroup(ctx, "g", Reset{To: PositionEnd(), Partition: -1})
		require.ErrorIs(r.t, err, ErrUnknownTopic)
		r.consumed(q)
		_, err = a.ResetGroup(ctx, "none", Reset{To: PositionEnd(), Partition: -1})
		require.ErrorIs(r.t, err, ErrNotFound)
		_, err = a.ResetGroup(ctx, "g", Reset{Partition: -1, Force: true})
		require.ErrorIs(r.t, err, ErrConfig)
		_, err = a.ResetGroup(ctx, "g", Reset{To: PositionEnd(), Partition: 1, Force: true})
		require.ErrorIs(r.t, err, ErrPartition)
		for _, id := range []string{"", "x", "1-x", "-1", "1-2-3"} {
			_, err = PositionAfter(id)
			require.ErrorIs(r.t, err, ErrEntryID, id)
		}
		r.expire()
		r.do("HSET", r.source(0).Members("g"), "m", strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10)+"|0")
		_, err = a.ResetGroup(ctx, "g", Reset{To: PositionEnd(), Partition: -1})
		require.ErrorIs(r.t, err, ErrGroupLive, "a heartbeat")
		require.ErrorIs(r.t, a.DeleteGroup(ctx, "g", Removal{}), ErrGroupLive)
		_, err = a.ResetGroup(ctx, "g", Reset{To: PositionEnd(), Partition: 0, Force: true, DropRetries: true})
		require.NoError(r.t, err)
		require.Zero(r.t, r.number("EXISTS", r.source(0).Retry()))
	})
}

// A reset under running members: they go on from the position by themselves.
func TestForcedResetOfARunningGroup(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 2)
		r.publish(q, "a", "0", "b", "1", "c", "2", "d", "3")
		r.subscribe(q, seen.handler(succeed), steady)
		eventually(r.t, func() bool { return r.seen.count(EventAcked) == 4 }, "all done")
		_, err := q.Admin(r.topic).ResetGroup(r.t.Context(), "g", Reset{To: PositionStart(), Partition: -1, Force: true})
		require.NoError(r.t, err)
		eventually(r.t, func() bool { return r.seen.count(EventAcked) == 8 }, "and all again")
		require.ElementsMatch(r.t, []string{"0", "0", "1", "1", "2", "2", "3", "3"}, seen.payloads())
	})
}

func TestDeletedGroupLeavesNoKeyBehind(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		_, err := q.CreateTopic(ctx, Topic{Name: r.topic, Partitions: 1})
		require.NoError(r.t, err)
		before := r.keys()
		r.consumed(q)
		a := q.Admin(r.topic)
		require.ErrorIs(r.t, a.DeleteGroup(ctx, "g", Removal{}), ErrGroupLive, "a lease")
		r.expire()
		r.do("HSET", r.source(0).Members("g"), "dead", "1|0")
		require.NoError(r.t, a.DeleteGroup(ctx, "g", Removal{}))
		require.Equal(r.t, before, r.keys())
		require.ErrorIs(r.t, a.DeleteGroup(ctx, "g", Removal{}), ErrNotFound)
	})
}
