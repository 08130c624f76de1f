package streammq

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// addAsJava adds an entry as a producer of the Java original does.
func (r *rig) addAsJava(partition int, payload, headers string) string {
	r.t.Helper()
	return r.text("XADD", StreamKey(r.topic, partition), "*", "headers", headers, "maxRetries", "3", "payload", payload,
		"partitionId", "0", "retryCount", "0", "topic", r.topic, "key", "k", "timestamp", "2026-11-23T05:50:55.699553049Z")
}

// A large payload lies where a header says, as JSON. Java deletes it with the first group's acknowledgement; here it is then
// a dead letter, not lost.
func TestPayloadsBesideOfJavaAreRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	large := strings.Repeat("x", 70_000)
	ref := func(name string) string {
		return `{"a":"b","x-payload-original-size":"70002","x-payload-storage-type":"hash","x-payload-hash-ref":"` + r.topic + name + `"}`
	}
	r.do("SET", r.topic+"text", `"`+large+`\"\u00fc"`)
	r.do("SET", r.topic+"object", `{"a":[1]}`)
	r.do("SET", r.topic+"no-json", "plain")
	r.do("HSET", r.topic+"no-string", "a", "b")
	for _, name := range []string{"text", "object", "no-json", "no-string", "gone"} {
		r.addAsJava(0, "", ref(name))
	}
	r.addAsJava(0, "inline", strings.Replace(ref("gone"), `"hash"`, `"inline"`, 1))
	r.addAsJava(0, "inline", strings.Replace(ref("object"), `"hash"`, `"inline"`, 1))
	r.subscribe(q, seen.handler(func(d *Delivery) Result {
		if d.Attempt == 1 && d.Payload[0] == 'x' {
			return RetryAfter(0, errBoom)
		}
		return Success()
	}), nil)
	eventually(t, func() bool { return len(seen.all()) == 6 && r.pending(0, "g") == 0 }, "all that can be read, and one again")
	want := []string{large + `"ü`, `{"a":[1]}`, "plain", "inline", "inline", large + `"ü`}
	require.Equal(t, want, seen.payloads())
	for _, d := range append(seen.all()[:3], seen.all()[5]) {
		require.Equal(t, "b", d.Headers["a"])
		require.NotContains(t, d.Headers, HeaderPayloadRef, "a retry carries the payload, and Java would look for what may be gone")
		require.NotContains(t, d.Headers, HeaderPayloadStorage)
		require.NotContains(t, d.Headers, HeaderPayloadSize)
	}
	list, err := q.Letters(r.topic).List(t.Context(), LetterQuery{Partition: -1})
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Contains(t, list[0].Error, "is no string")
	require.Contains(t, list[1].Error, "was removed")
	require.Equal(t, "70002", mustHeaders(t, list[1].Raw["headers"])[HeaderPayloadSize], "as it was")
	_, err = q.Letters(r.topic).Replay(t.Context(), list[1])
	require.ErrorIs(t, err, ErrMalformed)
}

func mustHeaders(t *testing.T, text string) map[string]string {
	t.Helper()
	headers, err := wire.DecodeHeaders(text)
	require.NoError(t, err)
	return headers
}

// A consumer in Java finds no payload of ours beside the stream: in a topic that it may read all lie in their entries.
func TestLargePayloadsLieInTheirEntriesWhereJavaReads(t *testing.T) {
	t.Parallel()
	for _, layout := range []Layout{LayoutSingle, LayoutCluster} {
		r := newRig(t, layout)
		q := r.mq(func(c *Config) { c.InlineMax = NewDefaultConfig().InlineMax })
		r.topicOf(q, 1)
		large := strings.Repeat("x", DefaultMaxPayload/4)
		r.publish(q, "k", large)
		fields := r.entries(r.source(0).Stream())[0].FieldValues
		if layout == LayoutSingle {
			require.Equal(t, large, fields["payload"])
			continue
		}
		require.NotEmpty(t, fields["payloadRef"])
	}
}

// What an earlier version wrote is read as it was meant, and what it could not read is a message again.
func TestWhatEarlierVersionsWroteIsRead(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		r.topicOf(q, 2)
		s := r.source(0)
		r.do("SADD", core.PartitionsKey(r.topic), "0", "1")
		old := []string{
			"payload", "p", "timestamp", "1700000000123", "retryCount", "0", "maxRetries", "2", "topic", r.topic, "partitionId", "0", "key", "",
			"headers", `{"x-message-uuid":"u"}`, "originalMessageId", "",
		}
		r.do(append([]string{"XADD", s.Stream(), "*"}, old...)...)
		r.do("XADD", s.Dlq(), "*", "originalTopic", r.topic, "partitionId", "0", "originalMessageId", "1-1", "group", "g", "retryCount", "0",
			"maxRetries", "0", "failedAt", "1700000000123", "error", "malformed message: field timestamp", "raw:payload", "from Java",
			"raw:timestamp", "2026-11-23T05:50:55.699553049Z", "raw:maxRetries", "3", "raw:key", "k", "raw:headers", `{"a":"b"}`)
		letters := q.Letters(r.topic)
		list, err := letters.List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Len(r.t, list, 1)
		require.Equal(r.t, []any{"from Java", "k", "b", 4, int64(1_700_000_000_123)}, []any{
			string(list[0].Payload), list[0].Key, list[0].Headers["a"], list[0].MaxRetries, list[0].FailedAt.UnixMilli(),
		})
		_, err = letters.Replay(ctx, list[0])
		require.NoError(r.t, err, "an upgrade lets it run")
		r.subscribe(q, seen.handler(func(*Delivery) Result { return RetryAfter(0, errBoom) }), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 6 && r.pending(0, "g") == 0 }, "two attempts, and four")
		require.Equal(r.t, 2, r.number("SCARD", core.PartitionsKey(r.topic)))
		require.Zero(r.t, r.number("SISMEMBER", core.PartitionsKey(r.topic), "0"))
		require.EqualValues(r.t, 1_700_000_000_123, seen.all()[0].Published.UnixMilli())
	})
}

// javaMover is what the mover of the Java original does: it takes each member that is due for the key of a hash, and what has no
// topic is removed for ever. It drops all other fields, and writes its own time.
const javaMover = `
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100)) do
  local function get(field, default) return redis.call('HGET', id, field) or default end
  local topic, partition = get('topic', ''), tonumber(get('partitionId', '')) or 0
  if topic ~= '' then
    local args = {'payload', get('payload', ''), 'timestamp', ARGV[2], 'retryCount', get('retryCount', '0'),
      'maxRetries', get('maxRetries', '0'), 'topic', topic, 'partitionId', tostring(partition)}
    for _, field in ipairs({'key', 'headers', 'originalMessageId'}) do
      local value = get(field, '')
      if value ~= '' then
        args[#args + 1] = field
        args[#args + 1] = value
      end
    end
    redis.call('XADD', 'stream:topic:' .. topic .. ':p:' .. partition, '*', unpack(args))
  end
  redis.call('ZREM', KEYS[1], id)
  redis.call('DEL', id)
end`

// moveAsJava lets that mover run at a time far ahead.
func (r *rig) moveAsJava() {
	r.t.Helper()
	r.do("EVAL", javaMover, "1", r.source(0).Retry(), "9999999999999", wire.EncodeTime(time.Now()))
}

// Our waiting retries survive Java's mover: the group gets its message with all that it knows of it.
func TestJavaMovesOurRetries(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	receipt, err := q.NewProducer(nil).Publish(t.Context(), r.topic, Message{Payload: []byte("\xff\x00p"), Headers: map[string]string{"a": "b"}, MaxAttempts: 3})
	require.NoError(t, err)
	sub := r.subscribe(q, seen.handler(func(*Delivery) Result { return RetryAfter(time.Hour, errBoom) }), nil)
	eventually(t, func() bool { return r.number("ZCARD", r.source(0).Retry()) == 1 }, "it waits")
	retry := r.do("ZRANGE", r.source(0).Retry(), "0", "-1")
	names, err := retry.AsStrSlice()
	require.NoError(t, err)
	require.Equal(t, []string{"streaming:mq:retry:item:" + r.topic + ":g:0:" + receipt.ID}, names, "a whole key")
	item := r.do("HGETALL", names[0])
	fields, err := item.AsStrMap()
	require.NoError(t, err)
	for _, name := range []string{"topic", "partitionId", "payload", "key", "headers", "retryCount", "maxRetries", "originalMessageId"} {
		require.Contains(t, fields, name)
	}
	r.moveAsJava()
	eventually(t, func() bool { return len(seen.all()) == 2 }, "it runs again")
	require.Zero(t, r.number("EXISTS", names[0]))
	d := seen.all()[1]
	require.Equal(t, []any{2, 3, receipt.UUID, receipt.ID, "\xff\x00p", "b", "g"}, []any{
		d.Attempt, d.MaxAttempts, d.UUID, d.OriginalID, string(d.Payload), d.Headers["a"], d.Headers[HeaderRetryGroup],
	})
	require.WithinDuration(t, seen.all()[0].Published, d.Published, time.Second, "not the time of the move")
	eventually(t, func() bool { return r.number("ZCARD", r.source(0).Retry()) == 1 }, "it waits again")
	r.moveAsJava()
	eventually(t, func() bool { return r.number("XLEN", r.source(0).Dlq()) == 1 && r.pending(0, "g") == 0 }, "the third attempt was the last")
	sub.end()
}

// Items of Java wait for its own mover, unless there is none any more.
func TestRetriesOfJavaAreLeftToItsMover(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 3)
	seconds := r.do("TIME")
	clock, err := seconds.AsIntSlice()
	require.NoError(t, err)
	now := clock[0] * 1000
	items := map[string]int64{}
	for _, row := range fromJava[struct {
		Key, Type string
		Value     [][2]javaText
	}](t, "retries.jsonl") {
		if row.Type != "hash" || len(items) == 5 {
			continue
		}
		key := strings.Replace(row.Key, ":orders:", ":"+r.topic+":", 1)
		args := []string{"HSET", key}
		for _, pair := range row.Value {
			args = append(args, string(pair[0]), strings.Replace(string(pair[1]), "orders", r.topic, 1))
		}
		r.do(args...)
		items[key] = now - 1000
		r.do("ZADD", r.source(0).Retry(), strconv.FormatInt(items[key], 10), key)
	}
	require.Len(t, items, 5)
	ours := r.source(0).ItemName("g", "1-1")
	r.do(append([]string{"HSET", ours, "dueAt", "1"}, (&wire.Entry{Payload: []byte("ours"), Topic: r.topic, RetryCount: 1, OriginalID: "1-1"}).Item()...)...)
	r.do("ZADD", r.source(0).Retry(), strconv.FormatInt(now, 10), ours)
	r.subscribe(q, seen.handler(succeed), nil)
	eventually(t, func() bool { return len(seen.all()) == 1 }, "ours comes back")
	require.Equal(t, 5, r.number("ZCARD", r.source(0).Retry()), "theirs stay")
	r.moveAsJava()
	eventually(t, func() bool { return len(seen.all()) == 6 }, "every group sees them then")
	byOriginal := map[string]Delivery{}
	for _, d := range seen.all() {
		byOriginal[d.OriginalID] = d
	}
	require.Equal(t, []any{"retry once", 2, 2, 4, "r"}, []any{
		string(byOriginal["1795413057548-0"].Payload), byOriginal["1795413057548-0"].Partition, byOriginal["1795413057548-0"].Attempt,
		byOriginal["1795413057548-0"].MaxAttempts, byOriginal["1795413057548-0"].Key,
	})
	require.Equal(t, `{"retry":"map"}`, string(byOriginal["1795413057562-0"].Payload))

	// No mover of theirs any more: it is long overdue.
	for name, fields := range map[string][]string{
		"whole":        {"topic", r.topic, "partitionId", "1", "payload", `"p"`, "key", "", "headers", `{"a":"b"}`, "retryCount", "1", "maxRetries", "3", "originalMessageId", "5-1"},
		"no-partition": {"topic", r.topic, "payload", `"p"`, "originalMessageId", "5-2"},
		"no-number":    {"topic", r.topic, "partitionId", "abc", "payload", `"p"`, "originalMessageId", "5-3"},
		"nowhere":      {"topic", r.topic, "partitionId", "99", "payload", `"p"`},
		"elsewhere":    {"topic", "other", "partitionId", "0", "payload", `"p"`},
	} {
		r.do(append([]string{"HSET", r.source(0).Item(name)}, fields...)...)
		r.do("ZADD", r.source(0).Retry(), "1", r.source(0).Item(name))
	}
	eventually(t, func() bool { return len(seen.all()) == 9 && r.number("EXISTS", r.source(0).Retry()) == 0 }, "three can be read")
	partitions := map[string]int{}
	for _, d := range seen.all()[6:] {
		partitions[d.OriginalID] = d.Partition
	}
	require.Equal(t, map[string]int{"5-1": 1, "5-2": 0, "5-3": 0}, partitions)
	require.Equal(t, 2, r.number("ZCARD", r.source(0).Quarantine()), "the others are put aside, not removed")
}

// What an earlier version has put off has a short name, which Java's mover would remove for good: it gets the name of now at
// once. What an earlier version puts aside, because it does not know such names, comes back.
func TestRetriesOfEarlierVersionsAreTakenOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 1)
	s := r.source(0)
	old := func(id string) {
		r.do("HSET", s.Item("g:0:"+id), "payload", id, "timestamp", "1700000000123", "retryCount", "1", "maxRetries", "5", "topic", r.topic,
			"partitionId", "0", "key", "", "headers", `{"x-retry-group":"g"}`, "originalMessageId", id, "dueAt", "1")
	}
	old("1-1")
	old("1-2")
	old("1-3")
	r.do("ZADD", s.Retry(), "1", "g:0:1-1", "9999999999998", "g:0:1-2")
	r.do("ZADD", s.Quarantine(), "1", s.Item("g:0:1-3"))
	r.subscribe(q, seen.handler(succeed), nil)
	eventually(t, func() bool { return len(seen.all()) == 2 }, "what is due, and what was put aside")
	require.ElementsMatch(t, []string{"1-1", "1-3"}, seen.payloads())
	require.Zero(t, r.number("EXISTS", s.Quarantine()))
	retry := r.do("ZRANGE", s.Retry(), "0", "-1")
	names, err := retry.AsStrSlice()
	require.NoError(t, err)
	require.Equal(t, []string{s.Item("g:0:1-2")}, names)
	old("1-4") // a member of an earlier version is still there
	r.do("ZADD", s.Retry(), "9999999999998", "g:0:1-4")
	eventually(t, func() bool {
		score := r.do("ZSCORE", s.Retry(), "g:0:1-4")
		return score.IsNil()
	}, "renamed")
	r.moveAsJava()
	eventually(t, func() bool { return len(seen.all()) == 4 }, "Java's mover loses none")
	for _, d := range seen.all() {
		require.Equal(t, 2, d.Attempt)
		require.GreaterOrEqual(t, d.MaxAttempts, 5, "one more where Java's mover wrote its time beside our number")
	}
}

// A consumer in Java and one of ours do not share a group: its writes have no fence. In groups of their own they do not touch
// each other's partitions.
func TestGroupsOfJavaAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.topicOf(q, 2)
	r.do("XGROUP", "CREATE", r.source(1).Stream(), "java", "0")
	r.do("SET", r.source(1).Lease("java"), "consumer-a", "PX", "3600000") // SETNX, then PEXPIRE there: no epoch
	cfg := NewDefaultSubscriberConfig(r.topic, "java", seen.handler(succeed))
	s, err := q.NewSubscriber(cfg)
	require.NoError(t, err)
	err = s.Run(t.Context())
	require.ErrorIs(t, err, ErrForeignGroup)
	require.ErrorContains(t, err, `group java of topic `+r.topic)
	require.ErrorContains(t, err, `"consumer-a" has partition 1: stop it, or take another group`)
	require.Equal(t, "consumer-a", r.text("GET", r.source(1).Lease("java")))

	r.publish(q, "a", "1", "b", "2", "c", "3")
	r.subscribe(q, seen.handler(succeed), nil)
	eventually(t, func() bool { return len(seen.all()) == 3 }, "another group has all")
	// A lease that comes later is respected too: the partition is left to whoever has it.
	sub := r.subscribe(q, (&log{}).handler(succeed), func(c *SubscriberConfig) { c.Group = "later" })
	eventually(t, func() bool { return r.number("EXISTS", r.source(0).Lease("later"), r.source(1).Lease("later")) == 2 }, "both are owned")
	sub.end()
	r.do("SET", r.source(0).Lease("later"), "consumer-b", "PX", "3600000")
	again := r.subscribe(q, (&log{}).handler(succeed), func(c *SubscriberConfig) { c.Group = "later" })
	eventually(t, func() bool { return r.number("EXISTS", r.source(1).Lease("later")) == 1 }, "the free one")
	again.end()
	require.Equal(t, "consumer-b", r.text("GET", r.source(0).Lease("later")))
}
