package streammq

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// letterOfJava adds a dead letter of the captures: of Java's default codec, or of StringCodec.
func (r *rig) letterOfJava(codec string) {
	r.t.Helper()
	for _, row := range fromJava[javaEntry](r.t, "letters.jsonl") {
		if row.Codec == codec {
			r.do(append([]string{"XADD", r.source(0).Dlq(), "*"}, texts(row.Fields)...)...)
			return
		}
	}
}

// fail publishes a message, and lets it become a dead letter of ours.
func (r *rig) fail(q *MQ, payload string) {
	r.t.Helper()
	r.publish(q, "k", payload)
	before := r.seen.count(EventDead)
	sub := r.subscribe(q, (&log{}).handler(func(*Delivery) Result { return Fail(errBoom) }), nil)
	r.told(EventDead, before+1)
	sub.end()
}

// kinds counts the dead letters of a stream in plain text, over which a client with Kryo 5 stumbles, and in Kryo.
func (r *rig) kinds(stream string) (plain, kryo int) {
	r.t.Helper()
	for _, e := range r.entries(stream) {
		for name := range e.FieldValues {
			if wire.IsKryo([]string{name}) {
				kryo++
			} else {
				plain++
			}
			break
		}
	}
	return plain, kryo
}

// One letter of ours empties the whole list of a client in Java with its default codec: such a client never finds one, by
// whatever it is known, and what lay there before it came moves.
func TestOurLettersNeverEmptyTheListOfJava(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		sign func(r *rig)
		own  bool
	}{
		"nothing of Java":        {func(*rig) {}, false},
		"a dead letter in Kryo":  {func(r *rig) { r.letterOfJava("kryo") }, true},
		"a dead letter as text":  {func(r *rig) { r.letterOfJava("string") }, false},
		"acknowledged with Kryo": {func(r *rig) { r.do("HSET", r.source(1).Commit(), "\x03g\xb1", "\x031-\xb1") }, true},
		"acknowledged as text":   {func(r *rig) { r.do("HSET", r.source(1).Commit(), "g1", "1-1") }, false},
		"a lease": {func(r *rig) {
			r.do("XGROUP", "CREATE", r.source(0).Stream(), "java", "0")
			r.do("SET", r.source(0).Lease("java"), "consumer-a")
		}, true},
		"its topic": {func(r *rig) { r.do("HDEL", core.MetaKey(r.topic), "layout") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, LayoutSingle)
			q := r.mq(nil)
			r.topicOf(q, 2)
			r.fail(q, "before")
			before, err := q.Letters(r.topic).List(t.Context(), LetterQuery{Partition: -1})
			require.NoError(t, err)
			r.do("HSET", r.source(0).Replayed(), before[0].ID, "1-1")
			one.sign(r)
			q = r.mq(nil) // nothing is known any more
			r.fail(q, "after")
			plain, kryo := r.kinds(r.source(0).Dlq())
			own := r.number("XLEN", r.source(0).OwnDeadLetters())
			if one.own {
				require.Zero(t, plain, "a client with Kryo reads them all")
				require.GreaterOrEqual(t, own, 2)
			} else {
				require.Zero(t, own)
				require.Zero(t, kryo)
			}
			list, err := q.Letters(r.topic).List(t.Context(), LetterQuery{Partition: -1})
			require.NoError(t, err)
			payloads := map[string]Letter{}
			for i, l := range list {
				payloads[string(l.Payload)] = l
				require.True(t, i == 0 || stream.CompareIDs(list[i-1].ID, l.ID) < 0, "in the order of their ids")
				got, err := q.Letters(r.topic).Get(t.Context(), 0, l.ID)
				require.NoError(t, err)
				require.Equal(t, l, got)
			}
			require.NotEmpty(t, payloads["before"].Replayed, "the mark moves with it")
			require.Contains(t, payloads, "after")
			stats, err := q.Admin(r.topic).Stats(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, len(list), stats.Letters)
		})
	}
}

func TestLettersGoWhereTheyAreToldTo(t *testing.T) {
	t.Parallel()
	for place, own := range map[LetterPlace]int{LettersOwn: 1, LettersShared: 0} {
		r := newRig(t, LayoutSingle)
		q := r.mq(func(c *Config) { c.Letters = place })
		r.topicOf(q, 1)
		r.do("HSET", r.source(0).Commit(), "\x03g\xb1", "\x031-\xb1")
		r.fail(q, "p")
		require.Equal(t, own, r.number("XLEN", r.source(0).OwnDeadLetters()))
		require.Equal(t, 1-own, r.number("XLEN", r.source(0).Dlq()))
	}
}

// Letters of both places are replayed, consumed and deleted as those of one.
func TestLettersInTwoPlacesAreOneList(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, ctx := r.mq(nil), t.Context()
	r.topicOf(q, 3)
	r.letterOfJava("kryo")
	r.fail(q, "ours")
	r.fail(q, "ours too")
	letters := q.Letters(r.topic)
	list, err := letters.List(ctx, LetterQuery{Partition: -1})
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, []any{"fails", "customer-7", 2, ""}, []any{string(list[0].Payload), list[0].Key, list[0].Partition, list[0].Group})
	page, err := letters.List(ctx, LetterQuery{Partition: -1, After: list[0].ID, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, list[1:2], page)

	consumed := &log{}
	sub, err := letters.NewSubscriber(NewDefaultLetterConfig("desk", "d"), func(_ context.Context, l Letter) Result {
		consumed.add(&Delivery{Payload: l.Payload})
		return Success()
	})
	require.NoError(t, err)
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- sub.Run(running) }()
	eventually(t, func() bool { return len(consumed.all()) == 3 }, "of both streams")
	stop()
	require.NoError(t, <-done)

	n, err := letters.ReplayAll(ctx, LetterQuery{Partition: -1}, 0, false)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	_, err = letters.Replay(ctx, list[2])
	require.ErrorIs(t, err, ErrReplayed)
	seen := &log{}
	last := r.subscribe(q, seen.handler(succeed), nil)
	eventually(t, func() bool { return len(seen.all()) == 3 }, "replayed")
	last.end()
	for _, d := range seen.all() {
		if string(d.Payload) == "fails" {
			require.Equal(t, []any{2, "customer-7", "FAIL", 4}, []any{d.Partition, d.Key, d.Headers["x-want"], d.MaxAttempts})
			require.NotContains(t, d.Headers, HeaderRetryGroup, "no group failed it here: all get it")
		}
	}
	n, err = letters.Delete(ctx, -1, list[0].ID, list[1].ID, "1-1")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	payload := core.MqPrefix + "payload:" + r.topic + ":p:0:u"
	r.do("SET", payload, `"x"`)
	r.do("SADD", r.source(0).JavaPayloads(), payload)
	r.do("ZADD", core.JavaPayloadTimes, "1", payload)
	r.do("HSET", r.source(2).Commit(), "g1", "1-1")
	require.NoError(t, q.Admin(r.topic).Delete(ctx, Removal{Force: true}))
	gone := r.do("ZSCORE", core.JavaPayloadTimes, payload)
	require.True(t, gone.IsNil())
	require.Empty(t, r.allKeys("*"+r.topic+"*"))
}
