package kafkaq

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/outbox"
)

func TestEventsArriveWithTheirHeaders(t *testing.T) {
	t.Parallel()
	eachBroker(t, 3, func(t *testing.T, b *bench) {
		events := b.events(1200)
		events[7].AttemptCount, events[8].TraceParent = 2, ""
		b.send(events)
		got := map[string]*sarama.ConsumerMessage{}
		for _, m := range b.records(b.cfg.Topic) {
			got[string(m.Key)] = m
		}
		require.Len(t, got, len(events))
		for _, e := range events {
			require.Equal(t, string(e.Payload), string(got[e.Key].Value))
			require.Equal(t, e.ID, header(got[e.Key], "event-id"))
			require.Equal(t, e.TraceParent, header(got[e.Key], "traceparent"))
		}
		require.Equal(t, "3", header(got[events[7].Key], "attempt"))
		require.Equal(t, "1", header(got[events[8].Key], "attempt"))
		require.Empty(t, b.sender.Send(t.Context(), nil))
		require.NoError(t, b.sender.Probe(t.Context()))
	})
}

// One event is too large for the library, one for the topic: their neighbours in the batch arrive.
func TestOnlyTheGuiltyAreRefused(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		admin, err := sarama.NewClusterAdminFromClient(b.client.lib)
		require.NoError(t, err)
		limit := "4096"
		require.NoError(t, admin.AlterConfig(sarama.TopicResource, b.cfg.Topic, map[string]*string{"max.message.bytes": &limit, settingTime: new(appendTime)}, false))
		probe := b.events(1)
		probe[0].Payload = []byte(repeat("z", 8<<10))
		b.eventually("the broker applies the limit", func() bool { // it answers the change before it does
			return errors.Is(b.sender.Send(t.Context(), probe)[0].Err, sarama.ErrMessageSizeTooLarge)
		})
		before := len(b.records(b.cfg.Topic))
		events := b.events(5)
		events[1].Payload = []byte(repeat("x", 2<<20))
		events[3].Payload = []byte(repeat("y", 8<<10))
		results := b.sender.Send(t.Context(), events)
		for i, r := range results {
			require.EqualValues(t, i+1, r.Seq)
			if i == 1 || i == 3 {
				require.ErrorIs(t, r.Err, outbox.ErrRefused, "event %d", i)
				require.ErrorIs(t, r.Err, sarama.ErrMessageSizeTooLarge)
				var refused *outbox.RefusedError
				require.ErrorAs(t, r.Err, &refused)
				require.False(t, refused.Late)
				continue
			}
			require.NoError(t, r.Err, "event %d", i)
		}
		require.Len(t, b.records(b.cfg.Topic), before+3, "each once")
	})
}

func TestAnUnknownTopicIsRefusedLate(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		events := b.events(3)
		events[1].Topic = b.cfg.Topic + "-nowhere"
		results := b.sender.Send(t.Context(), events)
		require.NoError(t, results[0].Err)
		require.NoError(t, results[2].Err)
		var refused *outbox.RefusedError
		require.ErrorAs(t, results[1].Err, &refused)
		require.True(t, refused.Late)
		require.ErrorContains(t, results[1].Err, events[1].Topic)
		topics, err := b.client.lib.Topics()
		require.NoError(t, err)
		require.NotContains(t, topics, events[1].Topic, "no topic is made by accident")
	})
}

// closedPort is an address on which nobody listens; of a port that was free a moment ago that is not known.
const closedPort = "127.0.0.1:1"

func TestAnAbsentBrokerRefusesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, closedPort, 0)
	for range 3 {
		began := time.Now()
		for _, r := range b.sender.Send(t.Context(), b.events(20)) {
			require.Error(t, r.Err)
			require.NotErrorIs(t, r.Err, outbox.ErrRefused)
		}
		require.Less(t, time.Since(began), sendTimeout)
	}
	require.Error(t, b.sender.Probe(t.Context()))
	require.Error(t, b.client.Ping(t.Context()))
}

// A broker that takes connections and never answers must not hold a send for longer than its limit.
func TestABrokerThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	b := newBench(t, l.Addr().String(), 0)
	fastest := time.Hour
	for range 3 { // what a machine that stalls adds, it does not add each time
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		began := time.Now()
		require.Error(t, b.sender.Probe(ctx))
		fastest = min(fastest, time.Since(began))
		cancel()
	}
	require.Less(t, fastest, callTimeout)
}

func TestAClosedProducerAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t, closedPort, 0)
	require.NoError(t, b.sender.Close())
	for _, r := range b.sender.Send(t.Context(), b.events(2)) {
		require.Error(t, r.Err)
		require.NotErrorIs(t, r.Err, outbox.ErrRefused)
	}
}

func TestClassification(t *testing.T) {
	t.Parallel()
	for err, refused := range map[error]bool{
		sarama.ErrMessageSizeTooLarge: true, sarama.ErrMessageSetSizeTooLarge: true, sarama.ErrInvalidRecord: true,
		sarama.ErrTopicAuthorizationFailed: true, sarama.ErrClusterAuthorizationFailed: true,
		sarama.ErrUnknownTopicOrPartition: false, sarama.ErrNotEnoughReplicas: false, sarama.ErrNotEnoughReplicasAfterAppend: false,
		sarama.ErrLeaderNotAvailable: false, sarama.ErrRequestTimedOut: false, sarama.ErrOutOfBrokers: false, sarama.ErrClosedClient: false,
		sarama.ErrSASLAuthenticationFailed: false, sarama.ErrInvalidMessage: false, sarama.ErrOutOfOrderSequenceNumber: false,
		sarama.ErrInvalidTopic: false, sarama.ErrShuttingDown: false, errNoAnswer: false, context.DeadlineExceeded: false,
	} {
		got := classify(err)
		require.ErrorIs(t, got, err)
		var r *outbox.RefusedError
		if refused {
			require.ErrorAs(t, got, &r)
		} else {
			require.NotErrorIs(t, got, outbox.ErrRefused, "%v", err)
		}
	}
	require.NoError(t, classify(nil))
}
