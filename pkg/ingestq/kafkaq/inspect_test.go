package kafkaq

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
)

// looking is a queue from outside.
func (b *bench) looking() ingestq.State {
	b.t.Helper()
	var s ingestq.State
	b.eventually("the brokers answer", func() bool {
		var err error
		s, err = NewInspector(b.client).Look(b.t.Context())
		if !errors.Is(err, ingestq.ErrUnavailable) {
			require.NoError(b.t, err)
		}
		return err == nil
	})
	require.True(b.t, s.Commits)
	return s
}

func TestTheInspectorSeesWhereTheGroupIs(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		require.Zero(t, b.looking().Watermark, "nothing was sent")
		b.add(2)
		first := b.records(b.cfg.Topic)[0].Timestamp
		b.add(1)
		s := b.looking()
		require.Equal(t, []ingestq.Part{{Newest: 3, Committed: -1}}, s.Parts)
		require.Equal(t, int64(3), s.Length)
		require.WithinDuration(t, first, s.Watermark, 0, "without a committed offset the log's start counts")
		require.Equal(t, s, b.looking(), "a look changes nothing")

		b.setCommitted(0, 2)
		s = b.looking()
		require.Equal(t, int64(2), s.Parts[0].Committed)
		require.WithinDuration(t, b.records(b.cfg.Topic)[2].Timestamp, s.Watermark, 0)
		b.setCommitted(0, 3)
		s = b.looking()
		require.Zero(t, s.Watermark, "all are finished")
		require.False(t, s.NoWatermark)
		b.setCommitted(0, 9)
		require.True(t, b.looking().NoWatermark, "beyond the log's end")
		b.setCommitted(0, 1)
		b.deleteRecords(0, 2)
		s = b.looking()
		require.Equal(t, []ingestq.Part{{Oldest: 2, Newest: 3, Committed: 1}}, s.Parts)
		require.NotZero(t, s.Watermark)

		groups, err := b.admin().DescribeConsumerGroups([]string{b.cfg.Group})
		require.NoError(t, err)
		require.Empty(t, groups[0].Members, "it is no member")
	})
}

func TestTheInspectorReadsDeadLetters(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		deadLetters := func() (all []ingestq.WrittenDeadLetter) {
			require.NoError(t, NewInspector(b.client).DeadLetters(t.Context(), func(l ingestq.WrittenDeadLetter) error {
				all = append(all, l)
				return nil
			}))
			return all
		}
		require.Empty(t, deadLetters())
		event := outbox.Event{Seq: 1, ID: "event-1", Topic: b.cfg.DLQTopic(), Key: "task-1", Payload: []byte(`{"taskId":"task-1","fence":7,"sourceStream":"x"}`)}
		b.send([]outbox.Event{event})
		raw := &sarama.ProducerMessage{Topic: b.cfg.DLQTopic(), Value: sarama.StringEncoder(`{"taskId":"task-1","fence":8}`)}
		require.NoError(t, b.sender.send(t.Context(), []*sarama.ProducerMessage{raw})[0])
		require.Equal(t, []ingestq.WrittenDeadLetter{{ID: "k:0:0", TaskID: "task-1", Fence: 7}, {ID: "k:0:1"}}, deadLetters(), "a record of no event is raw bytes")
		require.Zero(t, b.looking().DeadLettersFrom, "none was removed")

		b.removeDeadLetters(1)
		require.Len(t, deadLetters(), 1)
		require.WithinDuration(t, b.records(b.cfg.DLQTopic())[0].Timestamp, b.looking().DeadLettersFrom, 0)
		b.removeDeadLetters(2)
		require.Empty(t, deadLetters())
		require.Equal(t, never, b.looking().DeadLettersFrom)
	})
}

// removeDeadLetters is what retention does.
func (b *bench) removeDeadLetters(before int64) {
	b.t.Helper()
	require.NoError(b.t, b.admin().DeleteRecords(b.cfg.DLQTopic(), map[int32]int64{0: before}))
}

// A queue that is not there is an empty one, and a look makes none.
func TestTheInspectorMakesNoTopic(t *testing.T) {
	t.Parallel()
	eachBroker(t, 0, func(t *testing.T, b *bench) {
		require.Equal(t, ingestq.State{Commits: true, NoWatermark: true}, b.looking())
		require.NoError(t, NewInspector(b.client).DeadLetters(t.Context(), func(ingestq.WrittenDeadLetter) error { return sarama.ErrUnknown }))
		topics, err := b.admin().ListTopics()
		require.NoError(t, err)
		require.NotContains(t, topics, b.cfg.Topic)
		require.NotContains(t, topics, b.cfg.DLQTopic())
	})
	b := newBench(t, closedPort, 0)
	_, err := NewInspector(b.client).Look(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	err = NewInspector(b.client).DeadLetters(t.Context(), func(ingestq.WrittenDeadLetter) error { return nil })
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
}
