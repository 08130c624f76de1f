package kafkaq

import (
	"slices"
	"strconv"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
)

// putAway puts a record away as a member does that cannot read it, and returns its id.
func (b *bench) putAway(n int64, value string) {
	b.t.Helper()
	d := ingestq.Delivery{Raw: map[string]string{rawKey: "key", rawValue: value, rawError: "no envelope"}}
	record := quarantined(d, b.cfg.Topic, b.cfg.DLQTopic(), place{partition: 0, offset: n})
	require.NoError(b.t, b.sender.send(b.t.Context(), []*sarama.ProducerMessage{record})[0])
}

// copyOf sends the dead letter of a task, a copy of its row.
func (b *bench) copyOf(seq int64) {
	b.t.Helper()
	b.send([]outbox.Event{{Seq: seq, ID: "event", Topic: b.cfg.DLQTopic(), Key: "task", Payload: []byte(`{"taskId":"task","fence":1}`)}})
}

// transaction writes records in a transaction, whose marker takes an offset and is no record.
func (b *bench) transaction(topic string, commit bool, values ...string) {
	b.t.Helper()
	cfg := b.cfg.client()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests, cfg.Producer.RequiredAcks = true, 1, sarama.WaitForAll
	cfg.Producer.Return.Successes, cfg.Producer.Transaction.ID = true, topic
	p, err := sarama.NewSyncProducer(b.cfg.Brokers, cfg)
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, p.Close()) }()
	require.NoError(b.t, p.BeginTxn())
	for _, v := range values {
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(v)})
		require.NoError(b.t, err)
	}
	if commit {
		require.NoError(b.t, p.CommitTxn())
		return
	}
	require.NoError(b.t, p.AbortTxn())
}

// all are the records of a topic; markers of transactions are none.
func (b *bench) all(topic string) (all []Record) {
	b.t.Helper()
	require.NoError(b.t, b.client.Records(b.t.Context(), topic, func(r Record) error {
		all = append(all, r)
		return nil
	}))
	return all
}

func deadLetterIDs(deadLetters []ingestq.StoredDeadLetter) []string {
	all := make([]string, len(deadLetters))
	for i, l := range deadLetters {
		all[i] = l.ID
	}
	return all
}

func TestUnreadableRecordsAreListedShownAndDropped(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		book := NewDeadLetters(b.client, b.sender)
		other := NewDeadLetters(b.client, b.sender) // of another gateway
		n, err := book.Length(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		b.putAway(7, "not json")
		b.copyOf(1)
		b.putAway(9, "{}")
		b.transaction(b.cfg.DLQTopic(), true, "somebody else's")

		all, err := book.List(t.Context(), ingestq.DeadLetterPlace{}, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"k:0:3", "k:0:2", "k:0:0"}, deadLetterIDs(all), "the newest first, no copy of a row, no marker")
		require.Equal(t, map[string]string{rawKey: "key", rawValue: "not json"}, all[2].Raw)
		require.Equal(t, "no envelope", all[2].LastError)
		require.Equal(t, b.cfg.Topic, all[2].SourceStream)
		require.Equal(t, "k:0:7", all[2].SourceRecordID)
		require.Empty(t, all[2].TaskID)
		require.WithinDuration(t, b.all(b.cfg.DLQTopic())[0].Time, all[2].FailedAt, 0)
		var paged []string
		for after := (ingestq.DeadLetterPlace{}); ; {
			page, err := other.List(t.Context(), after, 1)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			paged = append(paged, page[0].ID)
			after = ingestq.DeadLetterPlace{ID: page[0].ID, At: page[0].FailedAt}
		}
		require.Equal(t, deadLetterIDs(all), paged)

		one, found, err := book.DeadLetter(t.Context(), "k:0:0")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, all[2], one)
		for _, id := range []string{"k:0:1", "k:0:4", "k:9:0", "1-1", ""} { // a copy, a marker, nothing
			_, found, err := book.DeadLetter(t.Context(), id)
			require.NoError(t, err)
			require.False(t, found, id)
		}

		n, err = book.Drop(t.Context(), "k:0:2", "k:0:1", "k:0:99", "1-1")
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		for _, l := range []*DeadLetters{book, other, NewDeadLetters(b.client, b.sender)} {
			all, err := l.List(t.Context(), ingestq.DeadLetterPlace{}, 10)
			require.NoError(t, err)
			require.Equal(t, []string{"k:0:3", "k:0:0"}, deadLetterIDs(all))
		}
		n, err = other.Drop(t.Context(), "k:0:2")
		require.NoError(t, err)
		require.Zero(t, n, "once")
		require.NoError(t, NewInspector(b.client).DeadLetters(t.Context(), func(l ingestq.WrittenDeadLetter) error {
			require.NotContains(t, []string{"k:0:4", "k:0:5"}, l.ID, "neither a marker nor what takes another back is a dead letter")
			return nil
		}))

		b.removeDeadLetters(3) // retention
		all, err = book.List(t.Context(), ingestq.DeadLetterPlace{}, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"k:0:3"}, deadLetterIDs(all))
		n, err = book.Length(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
	})
	b := newBench(t, closedPort, 0)
	_, err := NewDeadLetters(b.client, b.sender).Length(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
}

// A topic of dead letters may have several partitions, and what takes a record back lies in any of them.
func TestARecordIsTakenBackFromAnotherPartition(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		require.NoError(t, b.admin().CreatePartitions(b.cfg.DLQTopic(), 3, nil, false))
		b.eventually("the partitions are there", func() bool {
			partitions, err := b.client.Partitions(t.Context(), b.cfg.DLQTopic())
			return err == nil && len(partitions) == 3
		})
		for n := range int64(9) {
			d := ingestq.Delivery{Raw: map[string]string{rawKey: strconv.FormatInt(n, 10), rawValue: "x"}}
			record := quarantined(d, b.cfg.Topic, b.cfg.DLQTopic(), place{0, n})
			b.eventually("a record of each key is sent", func() bool { return b.sender.send(t.Context(), []*sarama.ProducerMessage{record})[0] == nil })
		}
		book := NewDeadLetters(b.client, b.sender)
		all, err := book.List(t.Context(), ingestq.DeadLetterPlace{}, 100)
		require.NoError(t, err)
		partitions := map[int32]bool{}
		for _, id := range deadLetterIDs(all) {
			at, _ := parseID(id)
			partitions[at.partition] = true
		}
		require.Greater(t, len(partitions), 1)
		for _, id := range deadLetterIDs(all) {
			_, err := book.Drop(t.Context(), id)
			require.NoError(t, err)
		}
		for _, l := range []*DeadLetters{book, NewDeadLetters(b.client, b.sender)} {
			left, err := l.Length(t.Context())
			require.NoError(t, err)
			require.Zero(t, left)
		}
	})
}

// A marker at the end of a log is an offset that no record ever has: nobody waits for it.
func TestTransactionMarkersAreNoRecords(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		for _, topic := range []string{b.cfg.Topic, b.cfg.DLQTopic()} {
			b.transaction(topic, true, "a", "b")
			b.transaction(topic, false, "c")
			var values []string
			for _, r := range b.all(topic) {
				values = append(values, string(r.Value))
			}
			require.Subset(t, values, []string{"a", "b"})
			require.NotContains(t, values, "")
		}
		var deadLetters int
		require.NoError(t, NewInspector(b.client).DeadLetters(t.Context(), func(ingestq.WrittenDeadLetter) error { deadLetters++; return nil }))
		require.GreaterOrEqual(t, deadLetters, 2)

		require.NotZero(t, b.looking().Watermark)
		b.setCommitted(0, 2) // behind the records of the first transaction; its marker is left
		b.transaction(b.cfg.Topic, true, "d")
		all := b.all(b.cfg.Topic)
		first := all[slices.IndexFunc(all, func(r Record) bool { return r.Offset >= 2 })]
		require.WithinDuration(t, first.Time, b.looking().Watermark, 0)
		b.setCommitted(0, all[len(all)-1].Offset+1)
		s := b.looking()
		require.Zero(t, s.Watermark, "all records are finished, though the log is longer by a marker")
		require.False(t, s.NoWatermark)

		b.removeDeadLetters(2)
		require.NotZero(t, b.looking().DeadLettersFrom)
	})
}
