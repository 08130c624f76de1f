package kafkaq

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	pb "github.com/millweir/millweir/proto"
)

const waitLimit = 2 * time.Minute // of every wait: others use the machine too

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// eachBroker runs a test on the embedded broker and on a real one.
func eachBroker(t *testing.T, partitions int, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		broker, err := embedded.Start()
		require.NoError(t, err)
		t.Cleanup(broker.Stop)
		test(t, newBench(t, broker.Bootstrap(), partitions))
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		test(t, newBench(t, labserver.Kafka(t).URL(""), partitions))
	})
}

// bench is a topic and a group of a test's own.
type bench struct {
	t      *testing.T
	cfg    Config
	client *Client
	sender *Producer
	reg    *prometheus.Registry
}

var topics atomic.Int64

func newBench(t *testing.T, bootstrap string, partitions int) *bench {
	t.Helper()
	cfg := NewDefaultConfig(bootstrap)
	cfg.Topic = fmt.Sprintf("tasks-%d-%d", time.Now().UnixNano(), topics.Add(1))
	cfg.Group = cfg.Topic + "-workers"
	if partitions > 0 {
		reports, err := Init(t.Context(), cfg, TopicParams{Partitions: partitions})
		require.NoError(t, err)
		require.Len(t, reports, 2)
	}
	b := &bench{t: t, cfg: cfg, reg: prometheus.NewRegistry()}
	b.client, b.sender = b.open()
	if partitions > 0 {
		require.NoError(t, b.client.Ping(t.Context()))
		b.eventually("a young broker gives producer ids", func() bool {
			l, err := b.sender.take(t.Context())
			if err == nil {
				b.sender.give(l, true)
			}
			return err == nil
		})
	}
	return b
}

// open makes a client and a producer that end with the test.
func (b *bench) open() (*Client, *Producer) {
	b.t.Helper()
	client, err := NewClient(b.cfg)
	require.NoError(b.t, err)
	sender := NewProducer(client)
	b.t.Cleanup(func() {
		require.NoError(b.t, sender.Close())
		require.NoError(b.t, client.Close())
	})
	return client, sender
}

// member is a Member whose Run runs until stop.
type member struct {
	*Member
	stop func()
}

// join makes a member; it joins with its first Read.
func (b *bench) join() *member {
	b.t.Helper()
	m := New(b.client, b.sender, slog.New(slog.DiscardHandler), time.Now, NewMetrics(b.reg))
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	out := &member{Member: m, stop: sync.OnceFunc(func() {
		cancel()
		require.NoError(b.t, <-done)
	})}
	b.t.Cleanup(out.stop)
	return out
}

// events are deliveries of n tasks.
func (b *bench) events(n int) []outbox.Event {
	b.t.Helper()
	out := make([]outbox.Event, n)
	for i := range out {
		payload, err := pb.Encode(envelope(i))
		require.NoError(b.t, err)
		out[i] = outbox.Event{
			Seq: int64(i + 1), ID: fmt.Sprintf("event-%d", i), Topic: b.cfg.Topic, Key: envelope(i).GetTaskId(), Payload: payload,
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		}
	}
	return out
}

func envelope(i int) *pb.TaskEnvelope {
	return &pb.TaskEnvelope{SchemaVersion: pb.SchemaVersion, TaskId: fmt.Sprintf("task-%05d", i), Type: "document", UserId: "local"}
}

// send brings events to the broker.
func (b *bench) send(events []outbox.Event) {
	b.t.Helper()
	for i, r := range b.sender.Send(b.t.Context(), events) {
		require.NoError(b.t, r.Err)
		require.Equal(b.t, events[i].Seq, r.Seq)
	}
}

// add brings n deliveries to the broker.
func (b *bench) add(n int) { b.t.Helper(); b.send(b.events(n)) }

// raw adds a record past the codec.
func (b *bench) raw(key, value string) {
	b.t.Helper()
	err := b.sender.send(b.t.Context(), []*sarama.ProducerMessage{{
		Topic: b.cfg.Topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(value),
	}})[0]
	require.NoError(b.t, err)
}

// read reads until it has n deliveries.
func (b *bench) read(m *member, n int) []ingestq.Delivery {
	b.t.Helper()
	var all []ingestq.Delivery
	end := time.Now().Add(waitLimit)
	for len(all) < n {
		require.Less(b.t, time.Now(), end, "%d of %d read", len(all), n)
		some, err := m.Read(b.t.Context(), n-len(all), time.Second)
		if err != nil {
			require.ErrorIs(b.t, err, ingestq.ErrUnavailable)
		}
		all = append(all, some...)
	}
	return all
}

// quiet says that nothing more comes.
func (b *bench) quiet(m *member) {
	b.t.Helper()
	some, err := m.Read(b.t.Context(), 10, 500*time.Millisecond)
	require.NoError(b.t, err)
	require.Empty(b.t, some)
}

// eventually waits for a condition.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	require.Eventually(b.t, ok, waitLimit, 20*time.Millisecond, what)
}

// committed waits until the group's offsets are as wanted, by partition.
func (b *bench) committed(want map[int32]int64) {
	b.t.Helper()
	var got map[int32]int64
	for end := time.Now().Add(waitLimit); ; {
		got = map[int32]int64{}
		borders, err := b.client.lags(b.t.Context())
		if err == nil {
			for _, x := range borders {
				got[x.Partition] = x.Committed
			}
			if fmt.Sprint(got) == fmt.Sprint(want) {
				return
			}
		}
		if time.Now().After(end) {
			require.Equal(b.t, want, got, "committed offsets; last error %v", err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// records reads a whole topic from outside.
func (b *bench) records(topic string) []*sarama.ConsumerMessage {
	b.t.Helper()
	lib, err := sarama.NewClient(b.cfg.Brokers, b.cfg.client())
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, lib.Close()) }()
	consumer, err := sarama.NewConsumerFromClient(lib)
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, consumer.Close()) }()
	partitions, err := lib.Partitions(topic)
	require.NoError(b.t, err)
	var out []*sarama.ConsumerMessage
	for _, p := range partitions {
		end, err := lib.GetOffset(topic, p, sarama.OffsetNewest)
		require.NoError(b.t, err)
		from, err := lib.GetOffset(topic, p, sarama.OffsetOldest)
		require.NoError(b.t, err)
		pc, err := consumer.ConsumePartition(topic, p, from)
		require.NoError(b.t, err)
		for from < end {
			select {
			case m := <-pc.Messages():
				out, from = append(out, m), m.Offset+1
			case <-time.After(waitLimit):
				b.t.Fatalf("record %d of %s/%d did not come", from, topic, p)
			}
		}
		require.NoError(b.t, pc.Close())
	}
	return out
}

func header(m *sarama.ConsumerMessage, key string) string {
	for _, h := range m.Headers {
		if string(h.Key) == key {
			return string(h.Value)
		}
	}
	return ""
}

func ids(ds []ingestq.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.ID
	}
	return out
}

func tasks(ds []ingestq.Delivery) map[string]int {
	out := map[string]int{}
	for _, d := range ds {
		out[d.Envelope().GetTaskId()]++
	}
	return out
}

// setCommitted sets a group's offset from outside; no member is there.
func (b *bench) setCommitted(partition int32, offset int64) {
	b.t.Helper()
	lib := b.client.lib
	require.NoError(b.t, lib.RefreshCoordinator(b.cfg.Group))
	coordinator, err := lib.Coordinator(b.cfg.Group)
	require.NoError(b.t, err)
	require.NoError(b.t, open(coordinator, lib.Config()))
	request := &sarama.OffsetCommitRequest{Version: 7, ConsumerGroup: b.cfg.Group, ConsumerGroupGeneration: -1}
	request.AddBlockWithLeaderEpoch(b.cfg.Topic, partition, offset, -1, 0, "")
	answer, err := coordinator.CommitOffset(request)
	require.NoError(b.t, err)
	for _, partitions := range answer.Errors {
		for _, e := range partitions {
			require.Equal(b.t, sarama.ErrNoError, e)
		}
	}
}

// deleteRecords removes what lies before an offset.
func (b *bench) deleteRecords(partition int32, before int64) {
	b.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(b.client.lib)
	require.NoError(b.t, err)
	require.NoError(b.t, admin.DeleteRecords(b.cfg.Topic, map[int32]int64{partition: before}))
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

func (b *bench) admin() sarama.ClusterAdmin {
	b.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(b.client.lib)
	require.NoError(b.t, err)
	return admin
}
