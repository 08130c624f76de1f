package streammq

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/produce"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// The files in testdata/java are what cuihairu/redis-streaming mq v0.2.1 wrote on a Redis 7.0 (Redisson 3.52.0), with its default
// codec, which is Kryo 5, and with StringCodec; and what its consumer made of entries that were added by hand.

// javaText is a value of a capture: a text, {"hex":…}, or a long one, of which there is only the head.
type javaText string

func (v *javaText) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		return json.Unmarshal(b, (*string)(v))
	}
	var long struct {
		Hex  string
		Len  int
		Head json.RawMessage
	}
	if err := json.Unmarshal(b, &long); err != nil {
		return err
	}
	if long.Len > 0 {
		if long.Head[0] == '{' { // Kryo: its length and the one character that it repeats
			*v = javaText("\x03\xf1\xc5\x08" + strings.Repeat("L", 70_000))
			return nil
		}
		var text string
		if err := json.Unmarshal(long.Head, &text); err != nil {
			return err
		}
		*v = javaText(text[:1] + strings.Repeat(text[1:2], long.Len-2) + text[:1])
		return nil
	}
	raw, err := hex.DecodeString(long.Hex)
	*v = javaText(raw)
	return err
}

func texts(values []javaText) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// fromJava reads a file of captures, one JSON object a line.
func fromJava[T any](t testing.TB, name string) []T {
	t.Helper()
	f, err := os.Open("testdata/java/" + name)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var rows []T
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var row T
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row), "%s", lines.Text())
		rows = append(rows, row)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, rows)
	return rows
}

type javaEntry struct {
	Codec, Step, Stream, ID string
	Fields                  []javaText
}

// plain are the fields by name, as far as they are plain text.
func (e javaEntry) plain() map[string]string {
	fields := map[string]string{}
	for i := 0; i < len(e.Fields); i += 2 {
		fields[string(e.Fields[i])] = string(e.Fields[i+1])
	}
	return fields
}

// What its producers and consumers look a topic up by is written as they write it.
func TestTopicsAreThoseOfJava(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	r.topicOf(r.mq(nil), 3)
	named := func(s string) string { return strings.Replace(s, "orders", r.topic, 1) }
	for _, row := range fromJava[struct {
		Key, Type string
		Value     json.RawMessage
	}](t, "topic.jsonl") {
		key := named(row.Key)
		require.Equal(t, row.Type, r.text("TYPE", key), key)
		require.Equal(t, -1, r.number("PTTL", key), key)
		if row.Type == "hash" {
			var pairs [][2]string
			require.NoError(t, json.Unmarshal(row.Value, &pairs))
			for _, pair := range pairs {
				require.Equal(t, pair[1], r.text("HGET", key, pair[0]), key)
			}
			continue
		}
		var members []string
		require.NoError(t, json.Unmarshal(row.Value, &members))
		for i := range members {
			members[i] = named(members[i])
		}
		answer := r.do("SMEMBERS", key)
		got, err := answer.AsStrSlice()
		require.NoError(t, err)
		require.ElementsMatch(t, members, got, key)
	}
}

func TestEntriesOfJavaAreRead(t *testing.T) {
	t.Parallel()
	kryo := 0
	for _, row := range fromJava[javaEntry](t, "entries.jsonl") {
		e, err := wire.DecodeEntry(texts(row.Fields))
		require.NoError(t, err, row.ID)
		require.False(t, e.Timestamp.IsZero(), row.ID)
		require.Equal(t, "orders", e.Topic, row.ID)
		want := row.plain()
		if want["payload"] == "" && want["topic"] == "" { // RedisDeadLetterService with the default codec replayed a dead letter
			require.Equal(t, "fails", string(e.Payload))
			require.Equal(t, "FAIL", e.Headers["x-want"])
			require.Equal(t, 4, e.MaxRetries)
			kryo++
			continue
		}
		require.Equal(t, want["payload"], string(e.Payload), row.ID)
		require.Equal(t, want["key"], e.Key, row.ID)
		require.Equal(t, want["originalMessageId"], e.OriginalID, row.ID)
		at, err := time.Parse(time.RFC3339Nano, want["timestamp"])
		require.NoError(t, err)
		require.True(t, at.Equal(e.Timestamp), row.ID)
		retries, _ := wire.DecodeCount(want["maxRetries"])
		require.Equal(t, retries+1, e.MaxRetries, "retries there, attempts in all here")
		var headers map[string]string
		if json.Unmarshal([]byte(want["headers"]), &headers) != nil {
			headers = nil // of Map.toString, which nobody reads back
		}
		require.Equal(t, headers, e.Headers, row.ID)
	}
	require.Equal(t, 1, kryo)
}

// A message that Java put off has a layer of JSON quotes for each time.
func TestPayloadsThatJavaPutOffLoseTheirQuotes(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, row := range fromJava[javaEntry](t, "entries.jsonl") {
		e, err := wire.DecodeEntry(texts(row.Fields))
		require.NoError(t, err)
		if e.RetryCount == 0 {
			continue
		}
		e.Unwrap()
		seen[model.Clip(string(e.Payload), 20)]++
	}
	for _, want := range []string{"retry once", `{"retry":"map"}`, "always retried", "RRRRRRRRRRRRRRRRRRRR…"} {
		require.NotZero(t, seen[want], "%s of %v", want, seen)
	}
	for name, one := range map[string]struct {
		e    wire.Entry
		want string
	}{
		"JSON that was meant":   {wire.Entry{Payload: []byte(`"\"a\""`), RetryCount: 1, OriginalID: "1-1"}, `"a"`},
		"never put off":         {wire.Entry{Payload: []byte(`"a"`), OriginalID: "1-1"}, `"a"`},
		"published so":          {wire.Entry{Payload: []byte(`"a"`), RetryCount: 1}, `"a"`},
		"put off here":          {wire.Entry{Payload: []byte(`"a"`), RetryCount: 2, OriginalID: "1-1", Headers: map[string]string{HeaderRetryGroup: "g", HeaderRetryCount: "2"}}, `"a"`},
		"here, before":          {wire.Entry{Payload: []byte(`"a"`), RetryCount: 2, OriginalID: "1-1", Headers: map[string]string{HeaderRetryGroup: "g"}}, `"a"`},
		"here, then there":      {wire.Entry{Payload: []byte(`"\"a\""`), RetryCount: 2, OriginalID: "1-1", Headers: map[string]string{HeaderRetryGroup: "g", HeaderRetryCount: "1"}}, `"a"`},
		"an object from beside": {wire.Entry{Payload: []byte(`"{}"`), RetryCount: 5, Headers: map[string]string{HeaderOriginalID: "1-1"}}, `{}`},
	} {
		one.e.Unwrap()
		require.Equal(t, one.want, string(one.e.Payload), name)
	}
}

type javaProbe struct {
	Probe   string
	Entry   map[string]javaText
	Handled []json.RawMessage
}

type javaHandled struct {
	Key                    *string
	Payload                *string
	RetryCount, MaxRetries int
	Headers                map[string]*string
}

// What Java's consumer made of entries by hand, this one makes of them too. The exceptions are what is lost there.
func TestEntriesAreReadAsLenientlyAsByJava(t *testing.T) {
	t.Parallel()
	better := map[string]bool{
		"ts-ms": true, "ts-empty": true, "ts-no-zone": true, // Java stumbles over each of them for ever
		"hash-ref-gone": true, "hash-ref-inline": true, "hash-ref-there": true, "hash-ref-object": true, "hash-ref-not-json": true, // see below
		"payloadRef": true, "payload-binary": true, "retry-negative": true,
	}
	compared := 0
	for _, row := range fromJava[javaProbe](t, "tolerance.jsonl") {
		var fields []string
		for name, value := range row.Entry {
			fields = append(fields, name, string(value))
		}
		e, err := wire.DecodeEntry(fields)
		require.NoError(t, err, row.Probe)
		if better[row.Probe] || strings.HasPrefix(row.Probe, "retry:") {
			continue
		}
		compared++
		var want javaHandled
		require.NoError(t, json.Unmarshal(row.Handled[0], &want), row.Probe)
		require.Equal(t, want.RetryCount, e.RetryCount, row.Probe)
		require.Equal(t, want.MaxRetries+1, e.MaxRetries, row.Probe)
		if want.Payload == nil {
			require.Nil(t, e.Payload, row.Probe)
		} else {
			require.Equal(t, *want.Payload, string(e.Payload), row.Probe)
		}
		require.Equal(t, *want.Key, e.Key, row.Probe)
		headers := map[string]string{}
		for name, value := range want.Headers {
			if value != nil && name != HeaderPartition && name != HeaderOriginalID { // its consumer adds these two
				headers[name] = *value
			}
		}
		got := map[string]string{}
		maps.Copy(got, e.Headers)
		require.Equal(t, headers, got, row.Probe)
	}
	require.Equal(t, 23, compared)
}

func TestPartitionsOfKeysAreThoseOfJava(t *testing.T) {
	t.Parallel()
	for _, row := range fromJava[struct {
		Keys []string
		Of   int
		Are  []int
	}](t, "partitions.jsonl") {
		for i, key := range row.Keys {
			n, err := produce.Choose(NewJavaHash(), &Message{Key: key}, row.Of)
			require.NoError(t, err)
			require.Equal(t, row.Are[i], n, "%s of %d", key, row.Of)
		}
	}
}

// Both codecs, and what is lost with the second: headers that Java prints as a map are read as far as they are clear.
func TestLettersOfJavaAreRead(t *testing.T) {
	t.Parallel()
	type letter struct {
		codec, payload, key, original string
		partition, attempts, retries  int
	}
	var got []letter
	for _, row := range fromJava[javaEntry](t, "letters.jsonl") {
		if !strings.HasPrefix(row.Step, "messages that are retried") && !strings.HasPrefix(row.Step, "retries have run") {
			continue
		}
		l := wire.DecodeDeadLetter(row.ID, row.plain())
		require.Nil(t, l.Raw)
		require.Equal(t, "orders", l.Topic)
		require.WithinDuration(t, time.Date(2026, 11, 23, 5, 51, 0, 0, time.UTC), l.FailedAt, time.Minute)
		require.NotEmpty(t, l.Headers["x-want"])
		require.Empty(t, l.Group)
		got = append(got, letter{row.Codec, model.Clip(string(l.Payload), 16), l.Key, l.OriginalID, l.Partition, l.Attempts, l.MaxRetries})
	}
	require.Equal(t, []letter{
		{"kryo", "fails", "customer-7", "1795413057680-0", 2, 1, 4},
		{"kryo", `{"dead":1}`, "d", "1795413057742-0", 1, 1, 4},
		{"kryo", "LLLLLLLLLLLLLLLL…", "d", "1795413057803-0", 1, 1, 4},
		{"kryo", "throws", "t", "1795413057662-0", 2, 2, 2},
		{"kryo", "always retried", "", "1795413057630-0", 0, 3, 3},
		{"string", "fails", "customer-7", "1795413077189-0", 2, 1, 4},
		{"string", `{"dead":1}`, "d", "1795413077205-0", 1, 1, 4},
		{"string", "LLLLLLLLLLLLLLLL…", "d", "1795413077236-0", 1, 1, 4},
	}, got)
}

// Texts that the captures do not have: an empty one, one that is no ASCII, a pair of surrogates; and objects.
func TestKryoIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]wire.KryoValue{
		"\x00":              {Null: true},
		"\x03\x80":          {Null: true, Quoted: true},
		"\x03\x81":          {Quoted: true},
		"\x03\x82d":         {Text: "d", Quoted: true},
		"\x03\x83\xc3\xbcx": {Text: "üx", Quoted: true},
		"\x03\x84\xe4\xbd\xa0\xed\xa0\xbd\xed\xb8\x80": {Text: "你😀", Quoted: true},
		"\x02\x06":     {Text: "3"},
		"\x02\x05":     {Text: "-3"},
		"\x09\x80\x01": {Text: "64"},
		"\x05\x01":     {Text: "true"},
		"\x01\x00java.util.HashMa\xf0\x02\x03\x82a\x01\x00\x01": {Text: `{"a":{}}`},
	} {
		got, err := wire.KryoText(text)
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, got, "%q", text)
	}
	for dump, want := range map[string]string{ // what Redisson's Kryo5Codec writes
		"01006a6176612e7574696c2e41727261794c6973f4040382610362e30206": `["a","bc",3]`,
		"01006a6176612e7574696c2e41727261794c6973f482030061e2":         `["ab"]`,
		"01006a6176612e7574696c2e41727261794c6973f401":                 `[]`,
		"01006a6176612e7574696c2e41727261794c6973f4830301826180":       `["a",null]`,
		"0a0000000000000440": "2.5",
		"01006a6176612e7574696c2e4c696e6b6564486173684d61f00a038269020203826c0980c8afa0250382640a0000000000000440038262050103826e00038273" +
			"0382c3bc036c6973f401016a6176612e7574696c2e41727261794c6973f4830200020403826d0100020382780202036c697374b201018203008271": `{"i":1,` +
			`"l":5000000000,"d":2.5,"b":true,"n":null,"s":"ü","list":[1,2],"m":{"x":1},"list2":["q"]}`,
	} {
		raw, err := hex.DecodeString(dump)
		require.NoError(t, err)
		got, err := wire.KryoText(string(raw))
		require.NoError(t, err, dump)
		require.JSONEq(t, want, got.Text)
	}
	for _, bad := range []string{
		"", "\x03", "\x03abc", "\x03\x85ab", "\x02", "\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x0b\x01", "\x00\x00",
		"\x01\x00java.io.Fil\xe5\x01", "\x01\x01\x01", "\x01\x00java.util.HashMa\xf0\x7f", "\x01\x00java.util.HashMa\xf0\x00",
	} {
		_, err := wire.KryoText(bad)
		require.Error(t, err, "%q", bad)
	}
	l := wire.DecodeDeadLetter("1-1", map[string]string{"\x03payloa\xe4": "\x7f"})
	require.NotNil(t, l.Raw)
	require.Contains(t, l.Error, "class 127")
}

func FuzzKryo(f *testing.F) {
	f.Add("\x01\x00java.util.HashMa\xf0\x02\x03\x82a\x01\x00\x01")
	f.Add("\x03\xf1\xc5\x08")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := wire.KryoText(text)
		if err == nil && !v.Quoted && !v.Null && !json.Valid([]byte(v.Text)) {
			t.Fatalf("%q is read as %q", text, v.Text)
		}
	})
}
