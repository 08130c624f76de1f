package streammq

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/redistest"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// node is a client of one node of a cluster alone.
func (r *rig) node(s *redistest.Server) rueidis.Client {
	r.t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true, ForceSingleClient: true})
	require.NoError(r.t, err)
	r.t.Cleanup(client.Close)
	return client
}

func ask(t testing.TB, c rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return c.Do(ctx, c.B().Arbitrary(args[0]).Args(args[1:]...).Build())
}

// has tells whether a node, and not another, serves a key.
func has(t testing.TB, c rueidis.Client, key string) bool {
	t.Helper()
	n, err := ask(t, c, "EXISTS", key).AsInt64()
	if stream.IsError(err, "MOVED ") {
		return false
	}
	require.NoError(t, err)
	return n == 1
}

// privateCluster is a cluster whose nodes a test may stop.
func privateCluster(t testing.TB) (*rig, *redistest.Cluster) {
	t.Helper()
	c := redistest.PrivateCluster(t)
	return newRigIn(t, home{name: "private", layout: LayoutCluster, addrs: c.Addrs()}), c
}

func TestPartitionsLieOnSeveralNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutCluster)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 16)
	_, err := q.NewProducer(NewRoundRobin()).PublishBatch(t.Context(), r.topic, make([]Message, 160))
	require.NoError(t, err)
	r.subscribe(q, seen.handler(func(d *Delivery) Result {
		if d.Attempt == 1 {
			return Retry(errBoom)
		}
		return DeadLetter(errBoom)
	}), nil)
	eventually(t, func() bool { return r.seen.count(EventDead) == 160 }, "each was retried and given up")
	nodes := redistest.RedisCluster(t).Masters
	shares := make([]int, len(nodes))
	for i, node := range nodes {
		client := r.node(node)
		for p := range 16 {
			s := r.source(p)
			if has(t, client, s.Stream()) {
				shares[i]++
				require.True(t, has(t, client, s.Dlq()), "what scripts touch with a stream lies on its node")
				require.True(t, has(t, client, s.Lease("g")))
			}
		}
	}
	sum := 0
	for _, n := range shares {
		require.Positive(t, n, "each node has partitions: %v", shares)
		sum += n
	}
	require.Equal(t, 16, sum)
}

// migrate moves a slot with all its keys while clients use it: those that are not there any more are answered ASK.
func migrate(t testing.TB, slot string, from, to rueidis.Client, toPort int, others ...rueidis.Client) {
	t.Helper()
	id := func(c rueidis.Client) string {
		s, err := ask(t, c, "CLUSTER", "MYID").ToString()
		require.NoError(t, err)
		return s
	}
	require.NoError(t, ask(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from)).Error())
	require.NoError(t, ask(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to)).Error())
	for {
		keys, err := ask(t, from, "CLUSTER", "GETKEYSINSLOT", slot, "10").AsStrSlice()
		require.NoError(t, err)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			require.NoError(t, ask(t, from, "MIGRATE", "127.0.0.1", strconv.Itoa(toPort), key, "0", "5000").Error())
		}
	}
	for _, c := range append([]rueidis.Client{to, from}, others...) {
		require.NoError(t, ask(t, c, "CLUSTER", "SETSLOT", slot, "NODE", id(to)).Error())
	}
}

// Slots move while members consume and producers publish: clients are redirected, nothing is lost, keys keep their order.
func TestSlotsMoveUnderLoad(t *testing.T) {
	t.Parallel()
	r, c := privateCluster(t)
	q, seen := r.mq(nil), &log{}
	const partitions, perKey = 3, 150
	r.topicOf(q, partitions)
	for range 2 {
		r.subscribe(q, seen.handler(func(d *Delivery) Result {
			if d.Attempt == 1 && len(d.Payload) > 0 && d.Payload[len(d.Payload)-1] == '7' {
				return Retry(errBoom)
			}
			return Success()
		}), nil)
	}
	published := publishing(r, q, perKey, 0)
	var nodes []rueidis.Client
	for _, m := range c.Masters {
		nodes = append(nodes, r.node(m))
	}
	for p := range partitions {
		stream := r.source(p).Stream()
		slot, err := ask(t, nodes[0], "CLUSTER", "KEYSLOT", stream).AsInt64()
		require.NoError(t, err)
		eventually(t, func() bool { return has(t, nodes[0], stream) || has(t, nodes[1], stream) || has(t, nodes[2], stream) }, "made")
		from := 0
		for !has(t, nodes[from], stream) {
			from++
		}
		to := (from + 1) % len(nodes)
		migrate(t, strconv.FormatInt(slot, 10), nodes[from], nodes[to], c.Masters[to].Port, nodes[(from+2)%len(nodes)])
		require.True(t, has(t, nodes[to], stream))
	}
	<-published
	r.allDone(partitions, 4*perKey, seen)
	checkOrder(t, seen.all())
}

// publishing adds perKey numbered messages for each of four keys, one after another per key with a pause between, and closes the channel when
// all were accepted. A message whose answer was lost is sent again under its uuid.
func publishing(r *rig, q *MQ, perKey int, pause time.Duration) <-chan struct{} {
	producer := q.NewProducer(nil)
	var running sync.WaitGroup
	for k := range 4 {
		running.Go(func() {
			for i := range perKey {
				m := Message{Key: "k" + strconv.Itoa(k), Payload: []byte(strconv.Itoa(i)), Headers: map[string]string{HeaderUUID: model.NewUUID(time.Now())}}
				for r.t.Context().Err() == nil {
					if _, err := producer.Publish(r.t.Context(), r.topic, m); err == nil {
						break
					}
					<-time.After(20 * time.Millisecond)
				}
				<-time.After(pause)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	r.t.Cleanup(func() { <-done })
	return done
}

// allDone waits until nothing is pending or waits for a retry, and all messages were seen.
func (r *rig) allDone(partitions, messages int, seen *log) {
	r.t.Helper()
	eventually(r.t, func() bool {
		for p := range partitions {
			if r.pending(p, "g") != 0 || r.number("EXISTS", r.source(p).Retry()) != 0 {
				return false
			}
		}
		return distinct(seen.all()) == messages
	}, "all done")
}

// A master dies and its replica takes its place: members go on with what it had.
func TestReplicaTakesOver(t *testing.T) {
	t.Parallel()
	r, c := privateCluster(t)
	q, seen := r.mq(nil), &log{}
	const partitions, before = 6, 60
	r.topicOf(q, partitions)
	r.subscribe(q, seen.handler(succeed), nil)
	round := func(from int) {
		for i := range before {
			m := Message{Key: strconv.Itoa(i), Payload: []byte(strconv.Itoa(from + i)), Headers: map[string]string{HeaderUUID: model.NewUUID(time.Now())}}
			eventually(t, func() bool {
				_, err := q.NewProducer(nil).Publish(t.Context(), r.topic, m)
				return err == nil
			}, "published")
		}
	}
	round(0)
	r.allDone(partitions, before, seen)
	require.NoError(t, c.Synced(t.Context()))
	require.NoError(t, c.Masters[0].Kill(t.Context()))
	require.NoError(t, c.Promote(t.Context()))
	round(before)
	r.allDone(partitions, 2*before, seen)
}
