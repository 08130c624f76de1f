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

	beside := entry{payloadRef: "uuid", timestamp: time.UnixMilli(0)}
	got, err = decodeEntry(beside.fields())
	require.NoError(t, err)
	require.Equal(t, beside, got)
}

// What others wrote: fewer fields, more fields, other orders.
func TestEntryOfOthers(t *testing.T) {
	t.Parallel()
	got, err := decodeEntry([]string{"color", "red", "key", "k", "payload", ""})
	require.NoError(t, err)
	require.Equal(t, entry{key: "k", payload: []byte{}}, got)
	for _, bad := range [][]string{
		nil, {"payload"}, {"key", "k"}, {"payloadRef", ""},
		{"payload", "p", "retryCount", "-1"}, {"payload", "p", "partitionId", "x"}, {"payload", "p", "timestamp", "now"},
		{"payload", "p", "headers", "[]"}, {"payload", "p", "headers", "{"}, {"payload", "p", "maxRetries", "99999999999"},
	} {
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
		if e.timestamp.IsZero() {
			again.timestamp = e.timestamp // the zero time is written as a number
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
