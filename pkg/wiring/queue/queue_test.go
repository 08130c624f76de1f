package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/queue"
)

// A program that does not link the transport of INGEST_QUEUE says so, and does not start as if there were nothing to carry.
func TestAQueueThatIsNotLinkedIsRefused(t *testing.T) {
	t.Parallel()
	b := wiring.New(&process.Env{Name: "reader"})
	for _, kind := range []string{queue.Redis, queue.Kafka, ""} {
		set, err := queue.Open(b, queue.Settings{Kind: kind}, queue.KafkaSettings{})
		require.ErrorIs(t, err, process.ErrBadSetting)
		require.ErrorContains(t, err, "INGEST_QUEUE: is "+kind+": reader does not carry it")
		require.Nil(t, set)
	}
	require.NoError(t, queue.Validate(queue.Settings{}, queue.KafkaSettings{}), "what is not linked is not judged")
}

func TestOnlyADeadLetterStreamOfRedisIsOwedEntries(t *testing.T) {
	t.Parallel()
	for s, owes := range map[queue.Settings]bool{
		{Kind: queue.Redis, DLQKey: "dlq"}: true, {Kind: queue.Redis}: false, {Kind: queue.Kafka, DLQKey: "dlq"}: false,
	} {
		require.Equal(t, owes, s.Owes(), s.Kind+s.DLQKey)
	}
}
