package wire

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

func TestEntryKeepsEverything(t *testing.T) {
	t.Parallel()
	want := Entry{
		Payload: []byte("p\x00\xff"), Timestamp: time.UnixMilli(1_700_000_000_123), RetryCount: 2, MaxRetries: 5,
		Topic: "orders", Partition: 3, Key: "k", Headers: map[string]string{"a": "b\"\\\n", "ü": "😀"}, OriginalID: "1-2",
	}
	got, err := DecodeEntry(want.Fields())
	require.NoError(t, err)
	require.Equal(t, want, got)

	beside := Entry{PayloadRef: "uuid", Timestamp: time.UnixMilli(0), MaxRetries: 1}
	got, err = DecodeEntry(beside.Fields())
	require.NoError(t, err)
	require.Equal(t, beside, got)
}

// What others wrote: fewer fields, more fields, other orders, and values that cannot be read.
func TestEntryOfOthers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 5, 0, 0, 123_456_789, time.UTC).Local()
	for text, want := range map[string]time.Time{
		"2026-11-23T05:00:00.123456789Z": at, "2026-11-23T07:00:00.123456789+02:00": at, "2026-11-23T05:00:00Z": at.Truncate(time.Second),
		"2026-11-23T05:00:00.1Z": at.Truncate(100 * time.Millisecond), "2026-11-23T05:00:00": {}, "now": {}, "": {},
	} {
		got, err := DecodeEntry([]string{"payload", "p", "timestamp", text, "maxRetries", "3"})
		require.NoError(t, err)
		require.Equal(t, Entry{Payload: []byte("p"), Timestamp: want, MaxRetries: 4}, got, text)
	}
	for _, one := range []struct {
		fields []string
		want   Entry
	}{
		{[]string{"color", "red", "key", "k", "payload", ""}, Entry{Key: "k", Payload: []byte{}, MaxRetries: 4}},
		{[]string{"key", "k"}, Entry{Key: "k", MaxRetries: 4}},
		{[]string{"payload", "p", "retryCount", "-1", "maxRetries", "0"}, Entry{Payload: []byte("p"), MaxRetries: 1}},
		{[]string{"payload", "p", "retryCount", "abc", "partitionId", "x"}, Entry{Payload: []byte("p"), MaxRetries: 4}},
		{[]string{"payload", "p", "headers", "{a=b}", "maxRetries", "99999999999"}, Entry{Payload: []byte("p"), MaxRetries: 4}},
		{[]string{"payload", "p", "headers", `{"n":{"x":1},"a":"b"}`, "maxRetries", "1"}, Entry{Payload: []byte("p"), MaxRetries: 2}},
		{
			[]string{"payload", "p", "headers", `{"n":1,"t":true,"z":null,"s":"\u00fc"}`},
			Entry{Payload: []byte("p"), MaxRetries: 4, Headers: map[string]string{"n": "1", "t": "true", "s": "ü"}},
		},
		{ // an earlier version of this queue: milliseconds, and attempts in all
			[]string{"payload", "p", "timestamp", "1700000000123", "maxRetries", "5", "key", "", "originalMessageId", ""},
			Entry{Payload: []byte("p"), Timestamp: time.UnixMilli(1_700_000_000_123), MaxRetries: 5},
		},
	} {
		got, err := DecodeEntry(one.fields)
		require.NoError(t, err)
		require.Equal(t, one.want, got, "%q", one.fields)
	}
	for _, bad := range [][]string{nil, {"payload"}, {"color", "red"}, {"\x03payloa\xe4", "\x7f"}} {
		_, err := DecodeEntry(bad)
		require.ErrorIs(t, err, model.ErrMalformed, "%q", bad)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add("payload", "x", "headers", `{"a":"b"}`)
	f.Add("payloadRef", "x", "retryCount", "7")
	f.Add("timestamp", "-1", "payload", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		e, err := DecodeEntry([]string{a, b, c, d})
		if err != nil {
			require.ErrorIs(t, err, model.ErrMalformed)
			return
		}
		again, err := DecodeEntry(e.Fields())
		require.NoError(t, err)
		if e.MaxRetries == 0 {
			e.MaxRetries = model.DefaultMaxAttempts // no number is written as the default
		}
		if e.PayloadRef != "" {
			again.Payload = e.Payload // only one of the two is written
		}
		if len(e.Headers) == 0 {
			again.Headers, e.Headers = nil, nil
		}
		require.Equal(t, e, again)
	})
}

func FuzzEncodeHeaders(f *testing.F) {
	f.Add("a", "b")
	f.Add("\x00\u2028\"\\", "\xff\x7f")
	f.Fuzz(func(t *testing.T, name, value string) {
		var got map[string]string
		require.NoError(t, json.Unmarshal([]byte(EncodeHeaders(map[string]string{name: value, "second": "x"})), &got))
		if utf8.ValidString(name) && utf8.ValidString(value) && name != "second" {
			require.Equal(t, map[string]string{name: value, "second": "x"}, got)
		}
	})
}
