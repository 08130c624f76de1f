package streammq

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// packArray and packString are the shortest forms of MessagePack, as cmsgpack writes them.
func packArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n)) //nolint:gosec // below 16
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n)) //nolint:gosec // below
	default:
		return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n)) //nolint:gosec // of a test
	}
}

func packString(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n)) //nolint:gosec // below 32
	case n < 1<<8:
		b = append(b, 0xd9, byte(n)) //nolint:gosec // below
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n)) //nolint:gosec // below
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n)) //nolint:gosec // of a test
	}
	return append(b, s...)
}

func packEntries(entries []wire.Raw) string {
	b := packArray(nil, len(entries))
	for _, e := range entries {
		b = packArray(packString(packArray(b, 2), e.Id), len(e.Fields))
		for _, f := range e.Fields {
			b = packString(b, f)
		}
	}
	return string(b)
}

// Each length of string and array has a form of its own, and the real packer's are read as ours are.
func TestPackedEntriesOfEverySize(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(func(c *Config) { c.InlineMax = 1 << 20 })
	r.topicOf(q, 1)
	m := r.member(q, "a")
	var want []string
	for _, size := range []int{0, 1, 31, 32, 255, 256, 65_535, 65_536, 100_000} {
		want = append(want, strings.Repeat("x", size))
		r.publish(q, "k", want[len(want)-1])
	}
	for n := len(want); n < 20; n++ { // more than 15 entries
		want = append(want, "more")
		r.publish(q, "k", "more")
	}
	got, err := m.Fetch(context.Background(), 100)
	require.NoError(t, err)
	require.Len(t, got.Entries, len(want))
	stored := r.entries(m.Src.Stream())
	for i, e := range got.Entries {
		require.Equal(t, stored[i].ID, e.Id)
		require.EqualValues(t, 1, e.Deliveries)
		decoded, err := wire.DecodeEntry(e.Fields)
		require.NoError(t, err)
		require.Equal(t, want[i], string(decoded.Payload))
	}
	again, err := wire.DecodePacked(packEntries(got.Entries))
	require.NoError(t, err)
	require.Equal(t, got.Entries, again)
}

// Where there is no cmsgpack, as in emulators, entries come as a reply.
func TestReadWithoutAPacker(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	q.core.Scripts = stream.Load(func(name string) string {
		return without(t, "entries_fetch", "rawget(_G, 'cmsgpack')", "nil")(name, stream.ReadLua(name))
	})
	r.topicOf(q, 1)
	m := r.member(q, "a")
	r.publish(q, "k", "0", "k", "1")
	got := r.next(m)
	require.Len(t, got.Entries, 2)
	e, err := wire.DecodeEntry(got.Entries[1].Fields)
	require.NoError(t, err)
	require.Equal(t, "1", string(e.Payload))
}

func TestPackedEntriesThatAreBroken(t *testing.T) {
	t.Parallel()
	good := packEntries([]wire.Raw{{Id: "1-1", Fields: []string{"payload", strings.Repeat("x", 40)}}})
	_, err := wire.DecodePacked(good)
	require.NoError(t, err)
	for n := 1; n < len(good); n++ {
		_, err := wire.DecodePacked(good[:n])
		require.ErrorIs(t, err, ErrMalformed, "%d bytes", n)
	}
	for _, bad := range []string{good + "x", "\xc0", "\x91\xa1x", "\x91\x91\xa1x", "\xdd\xff\xff\xff\xff", "\x91\x92\xdb\xff\xff\xff\xff", "\x91\x92\xa1x\x01"} {
		_, err := wire.DecodePacked(bad)
		require.ErrorIs(t, err, ErrMalformed, "%q", bad)
	}
}

func FuzzDecodePacked(f *testing.F) {
	f.Add(packEntries([]wire.Raw{{Id: "1-1", Fields: []string{"payload", "x"}}}))
	f.Add(packEntries([]wire.Raw{{Id: "1-1", Fields: []string{"payload", strings.Repeat("x", 300)}}, {Id: "1-2"}}))
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := wire.DecodePacked(text)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := wire.DecodePacked(packEntries(entries))
		require.NoError(t, err)
		require.Len(t, again, len(entries))
		for i := range entries {
			require.Equal(t, entries[i].Id, again[i].Id)
			require.ElementsMatch(t, entries[i].Fields, again[i].Fields)
		}
	})
}

// The short way through headers answers as encoding/json does, or not at all.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{
		`{"a":"b"}`, `{"a":"b","a":"c"}`, `{"":""}`, `{"a":"\n"}`, `{"a":"b",}`, `{"a" :"b"}`, `{"a":null}`, `{"ü":"😀"}`, "{\"a\":\"\xff\"}", `{"a":"b"}x}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := wire.PlainHeaders(s)
		if !ok {
			return
		}
		var want map[string]string
		require.NoError(t, json.Unmarshal([]byte(s), &want))
		require.Equal(t, want, got)
	})
}

func TestPlainHeadersAreReadTheShortWay(t *testing.T) {
	t.Parallel()
	got, ok := wire.PlainHeaders(wire.EncodeHeaders(map[string]string{HeaderUUID: model.NewUUID(NewDefaultConfig().Now()), "traceparent": "00-ü"}))
	require.True(t, ok)
	require.Len(t, got, 2)
	for _, s := range []string{`{"a":"\n"}`, `{"a":null}`, `{ }`, `{}`, "", `["a"]`, `{"a":"b"`, "{\"a\":\"\x01\"}"} {
		_, ok := wire.PlainHeaders(s)
		require.False(t, ok, s)
	}
}
