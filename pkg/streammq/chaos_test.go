package streammq

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
)

// killed runs a member as a process that is gone at the end of ctx: nothing is finished, released or told.
func (r *rig) killed(ctx context.Context, q *MQ, handler Handler, changes ...func(*SubscriberConfig)) {
	cfg := NewDefaultSubscriberConfig(r.topic, "g", handler)
	hasty(&cfg)
	mortal(&cfg)
	for _, change := range changes {
		change(&cfg)
	}
	client := &countdown{Client: q.core.Client}
	client.left.Store(math.MaxInt64)
	doomed, err := New(client, q.core.Cfg)
	require.NoError(r.t, err)
	s, err := doomed.NewSubscriber(cfg)
	require.NoError(r.t, err)
	loops, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	require.NoError(r.t, consume.StartTopic(s, loops, loops, &running, &running))
	<-ctx.Done()
	stop()
	running.Wait()
	client.left.Store(0) // as if it had died between two commands
	workers := consume.Living(s)
	for _, w := range workers {
		w.Lose()
	}
	for _, w := range workers {
		<-w.Done
	}
}

// Producers publish while members join, leave, die and lose their leases, and handlers fail now and then.
// At the end: nothing is lost, and per key the order of first deliveries is the order of publishing.
func TestNothingIsLostAndKeysKeepTheirOrderUnderFaults(t *testing.T) {
	onBothLayouts(t, func(r *rig) { underFaults(r, 1) })
}

// The same with lanes: under one lease no two messages of a key run at once, and their first runs keep their order.
func TestKeysKeepTheirOrderInLanesUnderFaults(t *testing.T) {
	onBothLayouts(t, func(r *rig) { underFaults(r, 4) })
}

// exclusive wraps a handler by a check that no two messages of a key run at once under one lease.
func exclusive(t testing.TB, inner Handler) Handler {
	var mu sync.Mutex
	running := map[string]bool{}
	return func(ctx context.Context, d *Delivery) Result {
		name := strconv.Itoa(d.Partition) + "/" + d.Epoch + "/" + d.Key
		mu.Lock()
		if running[name] {
			t.Errorf("two messages of key %s run at once", d.Key)
		}
		running[name] = true
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			delete(running, name)
		}()
		return inner(ctx, d)
	}
}

func underFaults(r *rig, concurrency int) {
	lanes := func(c *SubscriberConfig) { c.Concurrency = concurrency }
	const partitions, keys, perKey = 5, 12, 60
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, partitions)
	handler := exclusive(r.t, seen.handler(func(d *Delivery) Result {
		if d.Attempt == 1 && len(d.Payload) > 0 && d.Payload[len(d.Payload)-1] == '7' {
			return Retry(errBoom)
		}
		return Success()
	}))
	r.subscribe(q, handler, lanes)
	var faults sync.WaitGroup
	published := make(chan struct{})
	rng := rand.New(rand.NewPCG(1, 2))
	faults.Go(func() {
		for done := false; !done; {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(100+rng.IntN(300))*time.Millisecond)
			r.killed(ctx, q, handler, lanes)
			cancel()
			r.client.Do(context.Background(), r.client.B().Del().Key(r.source(rng.IntN(partitions)).Lease("g")).Build())
			select {
			case <-published:
				done = true
			default:
			}
		}
	})
	producer := q.NewProducer(nil)
	for i := range perKey {
		for k := range keys {
			_, err := producer.Publish(context.Background(), r.topic, Message{Key: "k" + strconv.Itoa(k), Payload: []byte(strconv.Itoa(i))})
			require.NoError(r.t, err)
		}
		<-time.After(20 * time.Millisecond)
	}
	close(published)
	faults.Wait()
	eventually(r.t, func() bool {
		for partition := range partitions {
			if r.pending(partition, "g") != 0 || r.number("EXISTS", r.source(partition).Retry()) != 0 {
				return false
			}
		}
		return distinct(seen.all()) == keys*perKey
	}, "all done")
	checkOrder(r.t, seen.all())
	r.t.Logf("%d runs of %d messages, %d writes refused", len(seen.all()), keys*perKey, r.seen.count(EventRefused))
}

func distinct(all []Delivery) int {
	uuids := map[string]bool{}
	for _, d := range all {
		uuids[d.UUID] = true
	}
	return len(uuids)
}

// checkOrder looks at the first run of each message, by key.
func checkOrder(t testing.TB, all []Delivery) {
	t.Helper()
	ran, last := map[string]bool{}, map[string]int{}
	for _, d := range all {
		if ran[d.UUID] {
			continue
		}
		ran[d.UUID] = true
		n, err := strconv.Atoi(string(d.Payload))
		require.NoError(t, err)
		before, any := last[d.Key]
		require.True(t, !any && n == 0 || any && n == before+1, "key %s: first run of %d after that of %d", d.Key, n, before)
		last[d.Key] = n
	}
}
