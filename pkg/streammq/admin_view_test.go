package streammq

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

func TestOwnersShowTheSharesAndWhoIsDead(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 5)
		a := q.Admin(r.topic)
		free, err := a.Owners(ctx, "g")
		require.NoError(r.t, err)
		require.Equal(r.t, 5, free.Unowned)
		require.Empty(r.t, free.Members)
		m := r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.Cap = 3 })
		src := r.source(0)
		r.do("HSET", src.Members("g"), "dead", strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10)+"|7")
		var o Owners
		eventually(r.t, func() bool {
			o, err = a.Owners(ctx, "g")
			return err == nil && o.Unowned == 2 && len(o.Members) == 2 && o.Members[1].Owned == 3 // leases are read after members
		}, "three are owned")
		require.Equal(r.t, 2, o.Uncovered)
		require.Len(r.t, o.Partitions, 5)
		require.Equal(r.t, MemberInfo{Name: "dead", Cap: 7, Left: o.Members[0].Left}, o.Members[0])
		require.Less(r.t, o.Members[0].Left, time.Duration(0))
		require.Equal(r.t, MemberInfo{Name: m.Name(), Live: true, Cap: 3, Owned: 3, Target: 3, Left: o.Members[1].Left}, o.Members[1])
		for _, p := range o.Partitions {
			if p.Owner == "" {
				require.Equal(r.t, PartitionOwner{Partition: p.Partition, Epoch: p.Epoch}, p)
				continue
			}
			require.Equal(r.t, m.Name(), p.Owner)
			require.True(r.t, p.Live)
			require.NotEmpty(r.t, p.Epoch)
			require.LessOrEqual(r.t, p.Left, steadyLease)
		}
	})
}

func TestGroupsAndWhatIsInFlight(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 2)
		a := q.Admin(r.topic)
		none, err := a.Groups(ctx)
		require.NoError(r.t, err)
		require.Empty(r.t, none)
		m := r.member(q, "m")
		r.do("HSET", m.Src.Members("g"), "m", strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10)+"|0")
		r.do("XGROUP", "CREATE", r.source(1).Stream(), "g", "0")
		r.do("XGROUP", "CREATE", r.source(1).Stream(), "other", "$")
		for i := range 14 {
			_, err := q.NewProducer(nil).Publish(ctx, r.topic, Message{Headers: map[string]string{HeaderForcePartition: strconv.Itoa(i / 12)}})
			require.NoError(r.t, err)
		}
		r.next(m) // 10 of 12
		groups, err := a.Groups(ctx)
		require.NoError(r.t, err)
		require.Equal(r.t, []GroupInfo{
			{Name: "g", Partitions: 2, Members: 1, Lag: 4, LagExact: true, Pending: 10},
			{Name: "other", Partitions: 1, Lag: 2, LagExact: true},
		}, groups)
		flight, err := a.InFlight(ctx, "g")
		require.NoError(r.t, err)
		require.Len(r.t, flight, 1)
		require.Equal(r.t, ConsumerInfo{Consumer: "m", Live: true, Pending: 10, Idle: flight[0].Idle}, flight[0])
		stats, err := a.Stats(ctx)
		require.NoError(r.t, err)
		require.Equal(r.t, []any{2, int64(14), int64(12), int64(2)}, []any{stats.Partitions, stats.Entries, stats.Each[0].Entries, stats.Each[1].Entries})
		for i, p := range stats.Each {
			entries := r.entries(r.source(i).Stream())
			require.Equal(r.t, []string{entries[0].ID, entries[len(entries)-1].ID}, []string{p.FirstID, p.LastID})
		}
	})
}

func TestStatsCountAllThatATopicHolds(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.fill(q)
		stats, err := q.Admin(r.topic).Stats(r.t.Context())
		require.NoError(r.t, err)
		require.Equal(r.t, []int64{10, 1, 20, 1}, []int64{stats.Retries, stats.Malformed, stats.Letters, stats.Beside})
		require.EqualValues(r.t, 42, stats.Entries, "with the replayed one")
	})
}

func TestMessagesCanBeLookedAt(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 2)
		a := q.Admin(r.topic)
		var receipts []Receipt
		for i := range 6 {
			payload := []byte(strconv.Itoa(i))
			if i == 4 {
				payload = make([]byte, DefaultInlineMax+1)
			}
			receipt, err := q.NewProducer(nil).Publish(ctx, r.topic, Message{Key: "k", Payload: payload, Headers: map[string]string{HeaderForcePartition: strconv.Itoa(i % 2)}})
			require.NoError(r.t, err)
			receipts = append(receipts, receipt)
		}
		bad := r.text("XADD", r.source(1).Stream(), "*", "color", "red")
		list, err := a.Range(ctx, 0, "("+receipts[0].ID, "+", 0)
		require.NoError(r.t, err)
		require.Len(r.t, list, 2)
		require.Equal(r.t, []any{0, receipts[2].ID, receipts[2].UUID, "k", "2", receipts[2].ID}, []any{
			list[0].Partition, list[0].ID, list[0].UUID, list[0].Key, string(list[0].Payload), list[0].OriginalID,
		})
		require.Len(r.t, list[1].Payload, DefaultInlineMax+1, "the payload beside the stream is read too")
		recent, err := a.Recent(ctx, 3)
		require.NoError(r.t, err)
		require.Len(r.t, recent, 3)
		require.Equal(r.t, bad, recent[0].ID)
		require.ErrorIs(r.t, recent[0].Problem, ErrMalformed)
		require.Equal(r.t, map[string]string{"color": "red"}, recent[0].Raw)
		for _, m := range recent[1:] {
			require.NoError(r.t, m.Problem)
		}
		for i := 1; i < 3; i++ {
			require.GreaterOrEqual(r.t, stream.CompareIDs(recent[i-1].ID, recent[i].ID), 0, "the newest first")
		}
		for i := range 2 { // two partitions may use one id
			r.do("XADD", r.source(i).Stream(), "9999999999999-1", "color", "blue")
		}
		all, err := a.Recent(ctx, 0)
		require.NoError(r.t, err)
		var paged []Stored
		for next := all[:1]; len(next) > 0; {
			paged = append(paged, next[0])
			next, err = a.Older(ctx, next[0].Partition, next[0].ID, 1)
			require.NoError(r.t, err)
		}
		require.Equal(r.t, all, paged)
		_, err = a.Older(ctx, 0, "x", 1)
		require.ErrorIs(r.t, err, ErrEntryID)
		r.do("DEL", r.source(0).Body(receipts[4].UUID))
		gone, err := a.Range(ctx, 0, receipts[4].ID, receipts[4].ID, 1)
		require.NoError(r.t, err)
		require.ErrorIs(r.t, gone[0].Problem, ErrMalformed)
		_, err = a.Range(ctx, 0, "nonsense", "+", 0)
		require.ErrorIs(r.t, err, ErrEntryID)
		_, err = a.Range(ctx, 2, "-", "+", 0)
		require.ErrorIs(r.t, err, ErrPartition)
	})
}

func TestTrimUpToWhatIsFinishedAndItsDryRun(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx, s := r.mq(nil), r.t.Context(), r.source(0)
		r.topicOf(q, 1)
		a := q.Admin(r.topic)
		var receipts []Receipt
		for portion := range slices.Chunk(make([]Message, 2*stream.TrimPortion+50), 100) { // each within a client's 10 s
			some, err := q.NewProducer(nil).PublishBatch(ctx, r.topic, portion)
			require.NoError(r.t, err)
			receipts = append(receipts, some...)
		}
		parts, err := a.Trim(ctx, Retention{Finished: true}, false)
		require.NoError(r.t, err)
		require.Equal(r.t, []PartitionTrim{{}}, parts, "without a group nothing is finished")
		frontier := receipts[2*stream.TrimPortion+20].ID
		r.do("XGROUP", "CREATE", s.Stream(), "far", "$")
		r.do("XGROUP", "CREATE", s.Stream(), "near", receipts[2*stream.TrimPortion+19].ID)
		r.do("XREADGROUP", "GROUP", "near", "c", "COUNT", "1", "STREAMS", s.Stream(), ">")
		for _, test := range []struct {
			name string
			keep Retention
			want int
		}{
			{"finished", Retention{Finished: true}, 2*stream.TrimPortion + 20},
			{"by length", Retention{MaxLen: 500}, 2*stream.TrimPortion + 50 - 500},
			{"by length, up to the frontier", Retention{MaxLen: 1}, 2*stream.TrimPortion + 20},
			{"too young", Retention{MaxAge: time.Hour}, 0},
		} {
			parts, err := a.Trim(ctx, test.keep, true)
			require.NoError(r.t, err, test.name)
			require.Equal(r.t, []PartitionTrim{{Entries: test.want, Frontier: frontier}}, parts, test.name)
			require.Equal(r.t, len(receipts), r.number("XLEN", s.Stream()), "a dry run removes nothing")
		}
		n, err := q.Trim(ctx, r.topic, Retention{Finished: true})
		require.NoError(r.t, err)
		require.Equal(r.t, 2*stream.TrimPortion+20, n)
		require.Equal(r.t, frontier, r.entries(s.Stream())[0].ID)
	})
}
