package wire_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
)

func TestValuesAsTheyTravel(t *testing.T) {
	t.Parallel()
	east := time.FixedZone("east", 2*3600)
	for _, tt := range []struct {
		value any
		want  string
	}{
		{wire.At(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), `"2030-01-02T03:04:05.000000Z"`},
		{wire.At(time.Date(2030, 1, 2, 1, 0, 0, 1999, east)), `"2030-01-01T23:00:00.000001Z"`},
		{wire.MaybeAt(time.Date(2030, 1, 2, 1, 0, 0, 0, east)), `"2030-01-01T23:00:00.000000Z"`},
		{wire.MaybeAt(time.Time{}), `null`},
		{wire.MaybeAt(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)), `null`},
		{wire.MaybeAt(time.Date(9998, 12, 31, 23, 59, 59, 999_999_000, time.UTC)), `"9998-12-31T23:59:59.999999Z"`},
		{wire.NullText(""), `null`},
		{wire.NullText(" "), `" "`},
		{wire.NullText("null"), `"null"`},
		{wire.NullText("a\"b\\\x00\xff"), `"a\"b\\\u0000\ufffd"`},
		{wire.NullInt(0), `null`},
		{wire.NullInt(-1), `null`},
		{wire.NullInt(1), `1`},
		{wire.NullInt(1<<63 - 1), `9223372036854775807`},
		{wire.List[int]{Items: []int{}}, `{"items":[],"nextCursor":null,"hasMore":false}`},
	} {
		got, err := json.Marshal(tt.value)
		require.NoError(t, err)
		require.Equal(t, tt.want, string(got), "%#v", tt.value)
	}
	require.Equal(t, "2030-01-01T23:00:00.000000Z", wire.At(time.Date(2030, 1, 2, 1, 0, 0, 0, east)).Text())
}

// What the gateway writes a client reads again.
func TestTimesAreReadAgain(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	sent := wire.Waiting{Reason: wire.WaitBackoff, Until: wire.MaybeAt(now)}
	text, err := json.Marshal(sent)
	require.NoError(t, err)
	var got wire.Waiting
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, sent, got)
	require.NoError(t, json.Unmarshal([]byte(`{"reason":"QUEUED","until":null}`), &got))
	require.Equal(t, wire.WaitQueue, got.Reason)
	require.Error(t, json.Unmarshal([]byte(`{"until":"tomorrow"}`), &got))
}
