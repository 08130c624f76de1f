package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq"
)

// deadStream is a single stream of the test's own whose n messages became dead letters.
func deadStream(t *testing.T, n int) (*streammq.MQ, rueidis.Client, string) {
	t.Helper()
	options, err := rueidis.ParseURL(labserver.RedisURL(t))
	require.NoError(t, err)
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	mq, err := streammq.New(client, streammq.NewDefaultConfig())
	require.NoError(t, err)
	topic := fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano())
	_, err = mq.CreateTopic(t.Context(), streammq.Topic{Name: topic, Partitions: 1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = mq.Admin(topic).Delete(context.Background(), streammq.Removal{Force: true}) })
	ended := make(chan struct{}, 10*n) // room for what comes twice
	cfg := streammq.NewDefaultSubscriberConfig(topic, "g", func(_ context.Context, d *streammq.Delivery) streammq.Result {
		defer func() { ended <- struct{}{} }()
		return streammq.Fail(errors.New("no use: " + d.Key))
	})
	cfg.Member = "m"
	s, err := mq.NewSubscriber(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for i := range n {
		_, err := mq.NewProducer(nil).Publish(t.Context(), topic, streammq.Message{Key: fmt.Sprint("k", i), Payload: []byte("x")})
		require.NoError(t, err)
	}
	for range n {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			require.Fail(t, "not all messages were run")
		}
	}
	require.Eventually(t, func() bool { // a message's end comes before its dead letter
		deadLetters, err := client.Do(t.Context(), client.B().Xlen().Key("stream:topic:"+topic+":dlq").Build()).AsInt64()
		return err == nil && deadLetters == int64(n)
	}, time.Minute, time.Millisecond)
	stop()
	require.NoError(t, <-done)
	return mq, client, topic
}

func TestDeadLettersOfATopic(t *testing.T) {
	t.Parallel()
	mq, client, topic := deadStream(t, 7)
	service := dlq.NewTopic(mq, topic, false)
	all := dlq.TopicQuery{Partition: -1}
	var ids []string
	for after, more := "", true; more; {
		page, next, err := service.List(t.Context(), all, after, 3)
		require.NoError(t, err)
		for _, l := range page {
			ids = append(ids, l.ID)
		}
		after, more = next, next != ""
	}
	require.Len(t, ids, 7)
	for name, c := range map[string]struct {
		q    dlq.TopicQuery
		want int
	}{
		"key": {dlq.TopicQuery{Partition: -1, Key: "k3"}, 1}, "text": {dlq.TopicQuery{Partition: -1, Text: "NO USE"}, 7},
		"group": {dlq.TopicQuery{Partition: -1, Group: "other"}, 0}, "partition": {dlq.TopicQuery{Partition: 1}, 0},
		"after": {dlq.TopicQuery{Partition: -1, FailedAfter: time.Now().Add(time.Hour)}, 0}, "before": {dlq.TopicQuery{Partition: -1, FailedBefore: time.Now().Add(time.Hour)}, 7},
	} {
		page, _, err := service.List(t.Context(), c.q, "", 9)
		require.NoError(t, err)
		require.Len(t, page, c.want, name)
	}

	l, err := service.Replay(t.Context(), ids[0])
	require.NoError(t, err)
	require.NotEmpty(t, l.Replayed)
	_, err = service.Replay(t.Context(), ids[0])
	require.ErrorIs(t, err, streammq.ErrReplayed)
	_, err = service.Replay(t.Context(), "1-1")
	require.ErrorIs(t, err, streammq.ErrNotFound)

	raw := client.Do(t.Context(), client.B().Xadd().Key("stream:topic:"+topic+":dlq").Id("*").FieldValue().FieldValue("error", "malformed").FieldValue("raw:what", "ever").Build())
	require.NoError(t, raw.Error())
	dry, err := service.ReplayAll(t.Context(), all, dlq.Bulk{Limit: 100, PerSecond: 1, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, 6, dry.Done)
	some, err := service.ReplayAll(t.Context(), all, dlq.Bulk{Limit: 4, PerSecond: 1000})
	require.NoError(t, err)
	require.Equal(t, 4, some.Done)
	rest, err := service.ReplayAll(t.Context(), all, dlq.Bulk{After: some.Next, Limit: 100, PerSecond: 1000})
	require.NoError(t, err)
	require.Equal(t, 2, rest.Done)
	require.Equal(t, map[dlq.Reason]int{dlq.ReasonUnreadable: 1}, rest.Skipped)
	require.Nil(t, rest.Next)
	n, err := client.Do(t.Context(), client.B().Xlen().Key("stream:topic:"+topic+":p:0").Build()).AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, 14, n, "each was added again once")

	require.NoError(t, service.Drop(t.Context(), ids[0]))
	require.ErrorIs(t, service.Drop(t.Context(), ids[0]), streammq.ErrNotFound)
	r, err := service.DropAll(t.Context(), all, dlq.Bulk{Limit: 5, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, 5, r.Done)
	r, err = service.DropAll(t.Context(), all, dlq.Bulk{Limit: 5})
	require.NoError(t, err)
	require.Equal(t, 5, r.Done)
	r, err = service.DropAll(t.Context(), all, dlq.Bulk{After: r.Next, Limit: 5})
	require.NoError(t, err)
	require.Equal(t, 2, r.Done)
	require.Nil(t, r.Next)

	page, _, err := dlq.NewTopic(mq, "no such stream "+topic, true).List(t.Context(), all, "", 5)
	require.NoError(t, err)
	require.Empty(t, page)
}
