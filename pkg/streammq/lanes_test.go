package streammq

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

func TestChainsKeepTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	var parcels []fence.Parcel
	for i, key := range []string{"a", "", "b", "a", "", "b", "a"} {
		parcels = append(parcels, fence.Parcel{Raw: wire.Raw{Id: strconv.Itoa(i)}, Entry: wire.Entry{Key: key}})
	}
	var got [][]string
	for _, chain := range consume.ChainsOf(parcels) {
		var ids []string
		for _, p := range chain {
			ids = append(ids, p.Id)
		}
		got = append(got, ids)
	}
	require.Equal(t, [][]string{{"0", "3", "6"}, {"1"}, {"2", "5"}, {"4"}}, got)
}

// Messages of other keys, and those without one, run beside a slow message; those of its key wait for it.
func TestOtherKeysRunBesideASlowMessage(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		r.publish(q, "slow", "0", "slow", "1", "other", "2", "", "3", "", "4")
		goOn := make(chan struct{})
		var once sync.Once
		m := r.subscribe(q, seen.handler(func(d *Delivery) Result {
			if string(d.Payload) == "0" {
				<-goOn
			}
			return Success()
		}), func(c *SubscriberConfig) { c.Concurrency = 2 })
		defer once.Do(func() { close(goOn) })
		eventually(r.t, func() bool { return len(seen.all()) == 4 }, "all but the second of the key")
		require.NotContains(r.t, seen.payloads(), "1")
		eventually(r.t, func() bool { return r.pending(0, "g") == 2 }, "the others are acknowledged meanwhile")
		once.Do(func() { close(goOn) })
		eventually(r.t, func() bool { return len(seen.all()) == 5 && r.pending(0, "g") == 0 }, "the rest")
		require.Equal(r.t, "1", seen.payloads()[4])
		require.Len(r.t, m.Partitions(), 1)
	})
}

// A write that is refused ends all lanes after their current messages; what none has come to is run again, in order.
func TestARefusalStopsAllLanes(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		var pairs []string
		for i := range 10 {
			for k := range 6 {
				pairs = append(pairs, "k"+strconv.Itoa(k), strconv.Itoa(i))
			}
		}
		r.publish(q, pairs...)
		var once sync.Once
		r.subscribe(q, exclusive(r.t, seen.handler(func(d *Delivery) Result {
			if d.Key == "k3" && string(d.Payload) == "4" {
				once.Do(func() { r.do("SET", r.source(0).Epoch("g"), "1") })
				return Fail(errBoom) // its write is refused
			}
			return Success()
		})), func(c *SubscriberConfig) { c.Concurrency, c.Batch, c.ClaimBatch = 4, 60, 60 })
		eventually(r.t, func() bool { return distinct(seen.all()) == 60 && r.pending(0, "g") == 0 }, "all")
		checkOrder(r.t, seen.all())
		r.told(EventDead, 1) // under the next lease
		eventually(r.t, func() bool { return r.seen.count(EventRefused) > 0 }, "the first letter was refused")
	})
}

// A stop lets the running messages of all lanes end, and begins no other.
func TestStopEndsAllLanes(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	r.publish(q, "a", "0", "b", "0", "a", "1", "b", "1", "c", "0")
	goOn := make(chan struct{})
	first := r.subscribe(q, func(_ context.Context, d *Delivery) Result {
		seen.add(d)
		<-goOn
		return Success()
	}, func(c *SubscriberConfig) { c.Concurrency = 2 })
	eventually(t, func() bool { return len(seen.all()) == 2 }, "two lanes")
	first.cancel()
	eventually(t, func() bool { w := consume.Owned(first.Subscriber)[0]; return w != nil && w.Stopped() }, "it knows")
	close(goOn)
	first.end()
	require.ElementsMatch(t, []string{"0", "0"}, seen.payloads())
	require.Equal(t, 3, r.pending(0, "g"))
}
