package streammq

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// A dead letter is shown as far as it can be read, and what it lacks has its default.
func TestLettersOfOthers(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, one := range map[string]struct {
		fields map[string]string
		want   Letter
	}{
		"a payload alone": {map[string]string{"payload": "p"}, Letter{Payload: []byte("p"), Attempts: 1, MaxRetries: 4}},
		"nothing":         {nil, Letter{Payload: []byte{}, Attempts: 1, MaxRetries: 4}},
		"all of it": {map[string]string{
			"originalTopic": "orders", "partitionId": "3", "payload": "p", "failedAt": "2024-01-01T00:00:00Z", "retryCount": "2", "maxRetries": "5",
			"headers": `{"a":"b"}`, "key": "k", "originalMessageId": "1-2",
		}, Letter{
			Topic: "orders", Partition: 3, Payload: []byte("p"), FailedAt: at.Local(), Attempts: 3, MaxRetries: 6, Headers: map[string]string{"a": "b"},
			Key: "k", OriginalID: "1-2",
		}},
		"no numbers": {map[string]string{"payload": "p", "partitionId": "x", "retryCount": "x", "maxRetries": "7.5", "failedAt": "yesterday"},
			Letter{Payload: []byte("p"), Attempts: 1, MaxRetries: 4}},
		"below zero": {map[string]string{"payload": "p", "partitionId": "-1", "retryCount": "-1"}, Letter{Payload: []byte("p"), Attempts: 1, MaxRetries: 4}},
		"a null among headers": {map[string]string{"payload": "p", "headers": `{"a":null,"b":"c"}`},
			Letter{Payload: []byte("p"), Attempts: 1, MaxRetries: 4, Headers: map[string]string{"b": "c"}}},
		"headers of a map":    {map[string]string{"payload": "p", "headers": "{a=b}"}, Letter{Payload: []byte("p"), Attempts: 1, MaxRetries: 4, Headers: map[string]string{"a": "b"}}},
		"headers of anything": {map[string]string{"payload": "p", "headers": "none"}, Letter{Payload: []byte("p"), Attempts: 1, MaxRetries: 4}},
		"its place in headers": {map[string]string{"payload": "p", "partitionId": "0", "originalMessageId": "9-9", "headers": `{"partitionId":"7","x-original-message-id":"1-1"}`},
			Letter{Payload: []byte("p"), Attempts: 1, MaxRetries: 4, Partition: 7, OriginalID: "1-1", Headers: map[string]string{HeaderPartition: "7", HeaderOriginalID: "1-1"}}},
	} {
		one.want.ID = "1-1"
		got := wire.DecodeDeadLetter("1-1", one.fields)
		require.True(t, one.want.FailedAt.Equal(got.FailedAt), name)
		got.FailedAt = one.want.FailedAt
		require.Equal(t, one.want, got, name)
	}
}

// Where there are no dead letters nothing is listed, replayed, deleted or trimmed, and that is no error.
func TestNoLetters(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 2)
		letters := q.Letters(r.topic)
		list, err := letters.List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Empty(r.t, list)
		for _, dry := range []bool{true, false} {
			n, err := letters.ReplayAll(ctx, LetterQuery{Partition: -1}, 0, dry)
			require.NoError(r.t, err)
			require.Zero(r.t, n)
		}
		n, err := letters.Delete(ctx, 0, "1-1", "2-2")
		require.NoError(r.t, err)
		require.Zero(r.t, n)
		n, err = letters.Trim(ctx, Retention{MaxLen: 1})
		require.NoError(r.t, err)
		require.Zero(r.t, n)
		require.NoError(r.t, letters.Clear(ctx))
		_, err = letters.Get(ctx, 0, "1-1")
		require.ErrorIs(r.t, err, ErrNotFound)
		_, err = letters.Replay(ctx, Letter{ID: "1-1", Payload: []byte("p")})
		require.ErrorIs(r.t, err, ErrNotFound)
		require.Zero(r.t, r.number("XLEN", r.source(0).Stream()), "nothing was added")
	})
}

// An id that is none is the caller's fault, not the server's, and a limit below zero replays nothing.
func TestQuestionsForLettersThatCannotBe(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, ctx := r.mq(nil), r.t.Context()
		r.topicOf(q, 1)
		r.fail(q, "p")
		letters := q.Letters(r.topic)
		for name, ask := range map[string]func() error{
			"get":    func() error { _, err := letters.Get(ctx, 0, "nonsense"); return err },
			"after":  func() error { _, err := letters.List(ctx, LetterQuery{Partition: -1, After: "nonsense"}); return err },
			"delete": func() error { _, err := letters.Delete(ctx, 0, "nonsense"); return err },
			"replay": func() error { _, err := letters.Replay(ctx, Letter{ID: "nonsense"}); return err },
		} {
			require.ErrorIs(r.t, ask(), ErrEntryID, name)
			require.NotErrorIs(r.t, ask(), ErrUnavailable, name)
		}
		_, err := letters.List(ctx, LetterQuery{Partition: -1, Limit: -5})
		require.ErrorIs(r.t, err, ErrConfig)
		n, err := letters.ReplayAll(ctx, LetterQuery{Partition: -1, Limit: -5}, 0, false)
		require.ErrorIs(r.t, err, ErrConfig)
		require.ErrorContains(r.t, err, "-5")
		require.Zero(r.t, n)
		list, err := letters.List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Len(r.t, list, 1)
		require.Empty(r.t, list[0].Replayed)
	})
}

// A dead letter whose payload lies beside the streams, as a program in Java may write it, is replayed with it, or is a dead letter again.
func TestReplayOfALetterWithAPayloadBeside(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen, ctx := r.mq(nil), &log{}, t.Context()
	r.topicOf(q, 2)
	r.do("SET", r.topic+"there", `"large"`)
	for _, name := range []string{"there", "gone"} {
		r.do("XADD", r.source(0).Dlq(), "*", "originalTopic", r.topic, "payload", "", "retryCount", "1", "maxRetries", "3", "partitionId", "0",
			"headers", `{"partitionId":"1","x-payload-storage-type":"hash","x-payload-hash-ref":"`+r.topic+name+`","a":"`+name+`"}`)
	}
	n, err := q.Letters(r.topic).ReplayAll(ctx, LetterQuery{Partition: -1}, 0, false)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	r.subscribe(q, seen.handler(succeed), nil)
	eventually(t, func() bool { return len(seen.all()) == 1 && r.seen.count(EventDead) == 1 && r.pending(1, "g") == 0 }, "one is run")
	require.Equal(t, []any{"large", "there", 1}, []any{string(seen.all()[0].Payload), seen.all()[0].Headers["a"], seen.all()[0].Partition})
	list, err := q.Letters(r.topic).List(ctx, LetterQuery{Partition: -1, Unreplayed: true})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Contains(t, list[0].Error, "was removed")
}

// A handler of dead letters that panics is given its dead letter again, and ends nobody.
func TestPanicInAHandlerOfLetters(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		r.fail(q, "p")
		cfg := NewDefaultLetterConfig("desk", "d")
		hasty(&cfg)
		runs := make(chan string, 10)
		s, err := q.Letters(r.topic).NewSubscriber(cfg, func(_ context.Context, l Letter) Result {
			runs <- string(l.Payload)
			if len(runs) == 1 {
				panic("at the disco")
			}
			return Success()
		})
		require.NoError(r.t, err)
		ctx, stop := context.WithCancel(r.t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		eventually(r.t, func() bool { return len(runs) == 2 }, "it runs again")
		stop()
		require.NoError(r.t, <-done)
		list, err := q.Letters(r.topic).List(r.t.Context(), LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Len(r.t, list, 1, "it stays listed")
	})
}
