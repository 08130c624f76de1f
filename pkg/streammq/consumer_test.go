package streammq

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// polling is a consumer whose Run was called.
type polling struct {
	*Consumer
	r      *rig
	cancel context.CancelFunc
	done   chan error
}

// consumer runs a hasty member of group "g"; change may be nil.
func (r *rig) consumer(q *MQ, change func(*ConsumerConfig)) *polling {
	r.t.Helper()
	cfg := NewDefaultConsumerConfig(r.topic, "g")
	cfg.Lease, cfg.Renew, cfg.Rebalance = steadyLease, 150*time.Millisecond, 100*time.Millisecond
	if change != nil {
		change(&cfg)
	}
	c, err := q.NewConsumer(cfg)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p := &polling{Consumer: c, r: r, cancel: cancel, done: make(chan error, 1)}
	go func() { p.done <- c.Run(ctx) }()
	r.t.Cleanup(p.end)
	return p
}

// end stops it as an orderly process would.
func (p *polling) end() {
	p.r.t.Helper()
	p.cancel()
	select {
	case err := <-p.done:
		require.NoError(p.r.t, err)
	case <-time.After(waitLimit):
		p.r.t.Fatal("Run does not return")
	}
	p.done <- nil
}

// poll polls until it has n messages.
func (p *polling) poll(n int) []*Delivery {
	p.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var all []*Delivery
	for len(all) < n {
		some, err := p.Poll(ctx, n-len(all), time.Second)
		require.NoError(p.r.t, err, "%d of %d polled", len(all), n)
		require.LessOrEqual(p.r.t, len(some), n-len(all))
		all = append(all, some...)
	}
	return all
}

// nothing requires that there is nothing to poll.
func (p *polling) nothing() {
	p.r.t.Helper()
	some, err := p.Poll(context.Background(), 10, 150*time.Millisecond)
	require.NoError(p.r.t, err)
	require.Empty(p.r.t, some)
}

func (r *rig) numbered(q *MQ, from, to int) []string {
	r.t.Helper()
	var pairs, want []string
	for i := from; i < to; i++ {
		pairs, want = append(pairs, "k"+strconv.Itoa(i%7), strconv.Itoa(i)), append(want, strconv.Itoa(i))
	}
	r.publish(q, pairs...)
	return want
}

func payloads(ds []*Delivery) []string {
	var list []string
	for _, d := range ds {
		list = append(list, string(d.Payload))
	}
	return list
}

func TestAConsumerIsGivenWhatItAsksFor(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		want := r.numbered(q, 0, 25)
		c := r.consumer(q, nil)
		first := c.poll(10)
		require.Equal(t, want[:10], payloads(first))
		require.Equal(t, 10, r.pending(0, "g"), "nothing is read that nobody asked for")
		rest := c.poll(15)
		require.Equal(t, want[10:], payloads(rest))
		c.nothing()
		n, err := c.Ack(context.Background(), append(rest, first...)...)
		require.NoError(t, err)
		require.Equal(t, 25, n)
		require.Zero(t, r.pending(0, "g"))
		n, err = c.Ack(context.Background(), first...)
		require.NoError(t, err)
		require.Zero(t, n, "a second time finds nothing")
	})
}

func TestAConsumerWakesUpForANewMessage(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 3)
		c := r.consumer(q, nil)
		c.nothing()
		got := make(chan []*Delivery, 1)
		go func() { got <- c.poll(1) }()
		r.publish(q, "k", "x")
		select {
		case ds := <-got:
			require.Equal(t, []string{"x"}, payloads(ds))
		case <-time.After(waitLimit):
			t.Fatal("a waiting Poll saw nothing")
		}
	})
}

// TestPartitionsTakeTurns: one with a long backlog must not keep the others waiting.
func TestPartitionsTakeTurns(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 4)
		producer := q.NewProducer(nil)
		for p := range 4 {
			for i := range 20 {
				_, err := producer.Publish(context.Background(), r.topic, Message{
					Payload: []byte(fmt.Sprint(p, "/", i)), Headers: map[string]string{HeaderForcePartition: strconv.Itoa(p)},
				})
				require.NoError(t, err)
			}
		}
		c := r.consumer(q, nil)
		eventually(t, func() bool { // a worker that has not yet begun has no turn
			consume.DeskOf(c.Consumer).Mu.Lock()
			defer consume.DeskOf(c.Consumer).Mu.Unlock()
			return len(consume.DeskOf(c.Consumer).Line) == 4
		}, "it owns all, and all stand in line")
		seen := map[int]int{}
		for range 12 {
			for _, d := range c.poll(2) {
				seen[d.Partition]++
			}
		}
		for p := range 4 {
			require.GreaterOrEqual(t, seen[p], 2, "partition %d of %v", p, seen)
		}
	})
}

// TestANewOwnerIsGivenAllThatIsPending: in the order of the ids, before what is new; the old owner's acknowledgement is refused.
func TestANewOwnerIsGivenAllThatIsPending(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		want := r.numbered(q, 0, 12)
		old := r.consumer(q, nil)
		held := old.poll(8)
		n, err := old.Ack(context.Background(), held[2], held[5])
		require.NoError(t, err)
		require.Equal(t, 2, n)
		old.Yield()
		next := r.consumer(q, nil)
		again := next.poll(10)
		require.Equal(t, append(append(append([]string{}, want[0:2]...), want[3:5]...), want[6:]...), payloads(again))
		require.EqualValues(t, 2, again[0].Deliveries)
		n, err = old.Ack(context.Background(), held...)
		require.NoError(t, err)
		require.Zero(t, n, "they are another's")
		require.Equal(t, 10, r.pending(0, "g"))
		n, err = next.Ack(context.Background(), again...)
		require.NoError(t, err)
		require.Equal(t, 10, n)
	})
}

// TestADeadConsumersMessagesComeToTheNext: its process ended without a word.
func TestADeadConsumersMessagesComeToTheNext(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 2)
		want := r.numbered(q, 0, 10)
		other := *r
		other.client = r.connect()
		dead := r.consumer(other.mq(nil), func(c *ConsumerConfig) { c.Lease = hastyLease })
		dead.poll(6)
		other.client.Close() // as at a kill: no release, and no renewal
		next := r.consumer(q, nil)
		require.ElementsMatch(t, want, payloads(next.poll(10)))
	})
}

// TestWhoDoesNotPollRests: its partitions go to those that do, and come back when it polls again.
func TestWhoDoesNotPollRests(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 4)
		resting := func(c *ConsumerConfig) { c.RestAfter = 300 * time.Millisecond }
		lazy, busy := r.consumer(q, resting), r.consumer(q, resting)
		share := func(a, b int) func() bool {
			return func() bool {
				_, err := busy.Poll(context.Background(), 1, 20*time.Millisecond)
				return err == nil && len(lazy.Partitions()) == a && len(busy.Partitions()) == b
			}
		}
		eventually(t, func() bool {
			_, err := lazy.Poll(context.Background(), 1, time.Millisecond)
			return err == nil && share(2, 2)()
		}, "both poll")
		eventually(t, share(0, 4), "one does not")
		eventually(t, func() bool {
			_, err := lazy.Poll(context.Background(), 1, time.Millisecond)
			return err == nil && share(2, 2)()
		}, "both poll again")
	})
}

func TestAMalformedEntryIsHandedOutAsItCame(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		r.do("XADD", r.source(0).Stream(), "*", "hello", "wor\xffld")
		r.publish(q, "k", "good")
		c := r.consumer(q, nil)
		got := c.poll(2)
		require.ErrorIs(t, got[0].Err, ErrMalformed)
		require.Equal(t, []string{"hello", "wor\xffld"}, got[0].Fields)
		require.NoError(t, got[1].Err)
		n, err := c.Ack(context.Background(), got...)
		require.NoError(t, err)
		require.Equal(t, 2, n)
	})
}

func TestAConsumerKeepsTheStatus(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		_, err := q.CreateTopic(context.Background(), Topic{Name: r.topic, Partitions: 1, Status: true})
		require.NoError(t, err)
		receipts := r.publish(q, "a", "1", "b", "2")
		c := r.consumer(q, nil)
		got := c.poll(2)
		require.Equal(t, StateProcessing, r.state(q, receipts[0].UUID))
		_, err = c.Ack(context.Background(), got[0])
		require.NoError(t, err)
		require.Equal(t, StateCompleted, r.state(q, receipts[0].UUID))
		require.Equal(t, StateProcessing, r.state(q, receipts[1].UUID))
	})
}

func (r *rig) state(q *MQ, uuid string) State {
	r.t.Helper()
	list, err := q.Statuses(context.Background(), uuid)
	require.NoError(r.t, err)
	return list[uuid].State
}

// TestACancelledPollSwallowsNothing: what was read for it is answered by it or by the next one, once.
func TestACancelledPollSwallowsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 2)
	c := r.consumer(q, nil)
	c.nothing()
	seen := map[string]int{}
	for i := range 60 {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan []*Delivery, 1)
		go func() {
			some, _ := c.Poll(ctx, 10, time.Minute)
			ended <- some
		}()
		time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
		r.publish(q, strconv.Itoa(i), strconv.Itoa(i))
		for _, d := range <-ended {
			seen[string(d.Payload)]++
		}
	}
	for _, d := range c.poll(60 - len(seen)) {
		seen[string(d.Payload)]++
	}
	require.Len(t, seen, 60)
	for payload, n := range seen {
		require.Equal(t, 1, n, payload)
	}
	c.nothing()
}

// TestAConsumerOutlivesItsServer: a Poll says that it is gone, and goes on when it is back and has lost all it had.
func TestAConsumerOutlivesItsServer(t *testing.T) {
	t.Parallel()
	r, s := newPrivateRig(t)
	q := r.mq(func(c *Config) { c.MetaRefresh = 50 * time.Millisecond })
	r.topicOf(q, 2)
	c := r.consumer(q, nil)
	r.publish(q, "a", "1")
	c.poll(1)
	require.NoError(t, s.Kill(t.Context()))
	eventually(t, func() bool {
		_, err := c.Poll(t.Context(), 1, 10*time.Millisecond)
		return model.IsPassing(err)
	}, "a Poll without a server is an error")
	require.NoError(t, s.Restart(t.Context()))
	eventually(t, func() bool {
		_, err := q.NewProducer(nil).Publish(t.Context(), r.topic, Message{Key: "b", Payload: []byte("2")})
		return err == nil
	}, "it is back")
	var got []string
	eventually(t, func() bool {
		some, err := c.Poll(t.Context(), 10, 50*time.Millisecond)
		got = append(got, payloads(some)...)
		return err == nil && len(got) > 0 && got[len(got)-1] == "2"
	}, "what came after")
}

func TestConsumerConfig(t *testing.T) {
	t.Parallel()
	good := NewDefaultConsumerConfig("t", "g")
	require.NoError(t, good.Validate())
	for name, change := range map[string]func(*ConsumerConfig){
		"no topic":      func(c *ConsumerConfig) { c.Topic = "" },
		"bad group":     func(c *ConsumerConfig) { c.Group = "a:b" },
		"negative rest": func(c *ConsumerConfig) { c.RestAfter = -1 },
		"batch":         func(c *ConsumerConfig) { c.Batch = model.MaxBatch + 1 },
		"lease":         func(c *ConsumerConfig) { c.Lease = c.Renew },
	} {
		cfg := good
		change(&cfg)
		require.Error(t, cfg.Validate(), name)
		_, err := (&MQ{}).NewConsumer(cfg)
		require.Error(t, err, name)
	}
}

func TestIDsCompareAsNumbers(t *testing.T) {
	t.Parallel()
	ordered := []string{"1-0", "1-2", "1-10", "9-0", "10-0", "1700000000000-0", "1700000000000-18446744073709551615"}
	for i, a := range ordered {
		for j, b := range ordered {
			require.Equal(t, i < j, stream.CompareIDs(a, b) < 0, "%s %s", a, b)
			require.Equal(t, i == j, stream.CompareIDs(a, b) == 0, "%s %s", a, b)
		}
	}
}
