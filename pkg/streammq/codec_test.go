package streammq

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestEntryKeepsEverything(t *testing.T) {
	t.Parallel()
	want := entry{
		payload: []byte("p\x00\xff"), timestamp: time.UnixMilli(1_700_000_000_123), retryCount: 2, maxRetries: 5,
		topic: "orders", partition: 3, key: "k", headers: map[string]string{"a": "b\"\\\n", "ü": "😀"}, originalID: "1-2",
	}
	got, err := decodeEntry(want.fields())
	require.NoError(t, err)
	require.Equal(t, want, got)

	beside := entry{payloadRef: "uuid", timestamp: time.UnixMilli(0), maxRetries: 1}
	got, err = decodeEntry(beside.fields())
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
		got, err := decodeEntry([]string{"payload", "p", "timestamp", text, "maxRetries", "3"})
		require.NoError(t, err)
		require.Equal(t, entry{payload: []byte("p"), timestamp: want, maxRetries: 4}, got, text)
	}
	for _, one := range []struct {
		fields []string
		want   entry
	}{
		{[]string{"color", "red", "key", "k", "payload", ""}, entry{key: "k", payload: []byte{}, maxRetries: 4}},
		{[]string{"key", "k"}, entry{key: "k", maxRetries: 4}},
		{[]string{"payload", "p", "retryCount", "-1", "maxRetries", "0"}, entry{payload: []byte("p"), maxRetries: 1}},
		{[]string{"payload", "p", "retryCount", "abc", "partitionId", "x"}, entry{payload: []byte("p"), maxRetries: 4}},
		{[]string{"payload", "p", "headers", "{a=b}", "maxRetries", "99999999999"}, entry{payload: []byte("p"), maxRetries: 4}},
		{[]string{"payload", "p", "headers", `{"n":{"x":1},"a":"b"}`, "maxRetries", "1"}, entry{payload: []byte("p"), maxRetries: 2}},
		{
			[]string{"payload", "p", "headers", `{"n":1,"t":true,"z":null,"s":"\u00fc"}`},
			entry{payload: []byte("p"), maxRetries: 4, headers: map[string]string{"n": "1", "t": "true", "s": "ü"}},
		},
		{ // an earlier version of this queue: milliseconds, and attempts in all
			[]string{"payload", "p", "timestamp", "1700000000123", "maxRetries", "5", "key", "", "originalMessageId", ""},
			entry{payload: []byte("p"), timestamp: time.UnixMilli(1_700_000_000_123), maxRetries: 5},
		},
	} {
		got, err := decodeEntry(one.fields)
		require.NoError(t, err)
		require.Equal(t, one.want, got, "%q", one.fields)
	}
	for _, bad := range [][]string{nil, {"payload"}, {"color", "red"}, {"\x03payloa\xe4", "\x7f"}} {
		_, err := decodeEntry(bad)
		require.ErrorIs(t, err, ErrMalformed, "%q", bad)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add("payload", "x", "headers", `{"a":"b"}`)
	f.Add("payloadRef", "x", "retryCount", "7")
	f.Add("timestamp", "-1", "payload", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		e, err := decodeEntry([]string{a, b, c, d})
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := decodeEntry(e.fields())
		require.NoError(t, err)
		if e.maxRetries == 0 {
			e.maxRetries = DefaultMaxAttempts // no number is written as the default
		}
		if e.payloadRef != "" {
			again.payload = e.payload // only one of the two is written
		}
		if len(e.headers) == 0 {
			again.headers, e.headers = nil, nil
		}
		require.Equal(t, e, again)
	})
}

func FuzzEncodeHeaders(f *testing.F) {
	f.Add("a", "b")
	f.Add("\x00\u2028\"\\", "\xff\x7f")
	f.Fuzz(func(t *testing.T, name, value string) {
		var got map[string]string
		require.NoError(t, json.Unmarshal([]byte(encodeHeaders(map[string]string{name: value, "second": "x"})), &got))
		if utf8.ValidString(name) && utf8.ValidString(value) && name != "second" {
			require.Equal(t, map[string]string{name: value, "second": "x"}, got)
		}
	})
}
