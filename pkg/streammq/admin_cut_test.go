package streammq

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// countdown is a client whose process dies after so many calls: none of the rest reaches the server.
type countdown struct {
	rueidis.Client
	left atomic.Int64
}

func (c *countdown) alive(ctx context.Context) context.Context {
	if c.left.Add(-1) >= 0 {
		return ctx
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	return dead
}

func (c *countdown) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.Client.Do(c.alive(ctx), cmd)
}

func (c *countdown) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	return c.Client.DoMulti(c.alive(ctx), multi...)
}

// cutOff runs a change again and again, each time with a client that dies one call later, until one is not cut off.
func cutOff(r *rig, prepare func(q *MQ), change func(a *Admin) error, check func(q *MQ)) {
	for calls := int64(0); ; calls++ {
		q := r.mq(nil)
		prepare(q)
		dying := r.mq(nil)
		client := &countdown{Client: r.client}
		client.left.Store(calls)
		dying.core.Client = client
		err := change(dying.Admin(r.topic))
		if err == nil {
			require.Greater(r.t, calls, int64(3))
			check(q)
			return
		}
		require.NotErrorIs(r.t, err, ErrUnknownTopic, calls)
		if err := change(r.mq(nil).Admin(r.topic)); !errors.Is(err, ErrUnknownTopic) && !errors.Is(err, ErrNotFound) {
			require.NoError(r.t, err, "after %d calls", calls)
		}
		check(q)
	}
}

func TestDeletionCutOffAfterAnyCall(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		cutOff(r, func(q *MQ) {
			m, _ := r.consumed(q)
			parcels, err := m.Unpack(r.t.Context(), []wire.Raw{r.next(m).Entries[0]})
			require.NoError(r.t, err)
			done, err := m.DeadLetter(r.t.Context(), &parcels[0], 1, errBoom)
			require.NoError(r.t, err)
			require.True(r.t, done)
		}, func(a *Admin) error { return a.Delete(r.t.Context(), Removal{Force: true}) },
			func(*MQ) { require.Empty(r.t, r.keys()) })
	})
}

// Each partition is set back as a whole or not at all, wherever the client dies, and another call ends it. Whoever consumes
// after that gets each message of the topic once more.
func TestResetCutOffAfterAnyCall(t *testing.T) {
	const partitions, each = 3, 4
	onBothLayouts(t, func(r *rig) {
		ctx, began := r.t.Context(), false
		cutOff(r, func(q *MQ) {
			if began {
				require.NoError(r.t, q.Admin(r.topic).Delete(ctx, Removal{Force: true}))
			}
			began = true
			r.halfDone(q, partitions, each)
		}, func(a *Admin) error {
			for i := range partitions {
				s, err := r.mq(nil).Admin(r.topic).GroupStats(ctx, "g")
				require.NoError(r.t, err)
				if s[i].LastDelivered == "0-0" || s[i].LastDelivered == "0" { // as an emulator says it
					require.EqualValues(r.t, []int64{0, 0, 0, each}, []int64{s[i].Pending, s[i].Due, s[i].Consumers, s[i].Lag}, "set back")
				} else {
					require.EqualValues(r.t, []int64{each - 2, 1, 1}, []int64{s[i].Pending, s[i].Due, s[i].Consumers}, "as it was")
				}
			}
			_, err := a.ResetGroup(ctx, "g", Reset{To: PositionStart(), Partition: -1, DropRetries: true})
			return err
		}, func(q *MQ) {
			seen := &log{}
			m := r.subscribe(q, seen.handler(succeed), steady)
			eventually(r.t, func() bool { return len(seen.all()) >= partitions*each }, "all come again")
			m.end()
			got := seen.payloads()
			slices.Sort(got)
			require.Len(r.t, slices.Compact(got), partitions*each)
			require.Len(r.t, seen.all(), partitions*each, "each once: what was put off went")
			for i := range partitions {
				require.Zero(r.t, r.number("ZCARD", r.source(i).Retry()))
				require.Zero(r.t, r.pending(i, "g"))
			}
		})
	})
}

// halfDone makes a topic whose group "g", in which nobody lives, has on each partition finished an entry, put off one in place
// and one by republishing, and keeps the rest pending.
func (r *rig) halfDone(q *MQ, partitions, each int) {
	r.t.Helper()
	ctx := r.t.Context()
	r.topicOf(q, partitions)
	for p := range partitions {
		src := r.source(p)
		for i := range each {
			_, err := q.NewProducer(nil).Publish(ctx, r.topic, Message{
				Payload: []byte(strconv.Itoa(p*each + i)), Headers: map[string]string{HeaderForcePartition: strconv.Itoa(p)},
			})
			require.NoError(r.t, err)
		}
		keys := []string{src.Lease("g"), src.Epoch("g")}
		epoch, err := q.core.Run(ctx, q.core.Scripts.LeaseTake, keys, "m", "60000").ToString()
		require.NoError(r.t, err)
		m := &fence.Reader{Mq: q.core, Src: src, Group: "g", Consumer: "m", Epoch: epoch}
		r.do("XGROUP", "CREATE", src.Stream(), "g", "0")
		got, err := m.Fetch(ctx, each)
		require.NoError(r.t, err)
		_, err = m.Ack(ctx, []fence.Held{of(got.Entries[0])})
		require.NoError(r.t, err)
		_, err = m.RetryInPlace(ctx, of(got.Entries[1]), 1, time.Hour)
		require.NoError(r.t, err)
		parcels, err := m.Unpack(ctx, got.Entries)
		require.NoError(r.t, err)
		_, err = m.RetryLater(ctx, of(got.Entries[2]), parcels[2].Entry, 1, time.Hour)
		require.NoError(r.t, err)
		r.do("DEL", src.Lease("g"))
	}
}

func TestGroupDeletionCutOffAfterAnyCall(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		before := r.keys()
		cutOff(r, func(q *MQ) {
			r.consumed(q)
			r.expire()
			r.do("HSET", r.source(0).Members("g"), "dead", strconv.Itoa(1)+"|0")
		}, func(a *Admin) error { return a.DeleteGroup(r.t.Context(), "g", Removal{}) },
			func(*MQ) { require.Equal(r.t, before, r.keys()) })
	})
}
