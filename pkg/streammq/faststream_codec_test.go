package streammq

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// captured is text, or the bytes that {"hex": …} stands for.
type captured []byte

func (c *captured) UnmarshalJSON(text []byte) error {
	var binary struct{ Hex *string }
	if json.Unmarshal(text, &binary) == nil && binary.Hex != nil {
		var err error
		*c, err = hex.DecodeString(*binary.Hex)
		return err
	}
	var s string
	err := json.Unmarshal(text, &s)
	*c = captured(s)
	return err
}

// said is what FastStream's handler was given.
type said struct {
	BodyType      string
	Body          json.RawMessage
	Headers       map[string]any
	CorrelationID string `json:"correlation_id"`
	ReplyTo       string `json:"reply_to"`
}

// captures reads the lines of a file of what FastStream wrote and read.
func captures[T any](t *testing.T, file string) []T {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "faststream", file))
	require.NoError(t, err)
	defer f.Close()
	var lines []T
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line T
		require.NoError(t, json.Unmarshal(in.Bytes(), &line), in.Text())
		lines = append(lines, line)
	}
	require.NoError(t, in.Err())
	require.NotEmpty(t, lines)
	return lines
}

type publishedLine struct {
	Published *struct {
		CorrelationID string `json:"correlation_id"`
		Value         json.RawMessage
	}
	Entry map[string]captured
	Step  string
	Said  []said
}

// body is what FastStream's handler got of a body; it decodes what is JSON.
func (s *said) check(t *testing.T, e *wire.Entry, about string) {
	t.Helper()
	if s.BodyType == "bytes" || s.BodyType == "str" {
		var want captured
		require.NoError(t, json.Unmarshal(s.Body, &want))
		require.Equal(t, string(want), string(e.Payload), about)
	} else {
		require.JSONEq(t, string(s.Body), string(e.Payload), about)
	}
	headers := map[string]string{}
	for name, value := range s.Headers {
		headers[name] = value.(string)
	}
	require.Equal(t, len(headers), len(e.Headers), about)
	for name, value := range headers {
		require.Equal(t, value, e.Headers[name], about)
	}
	require.Equal(t, s.ReplyTo, e.Headers[FastStreamReplyTo], about)
}

// Each entry that FastStream has written is read as its own reader reads it, and written again byte by byte.
func TestWhatFastStreamWrites(t *testing.T) {
	t.Parallel()
	for file, format := range map[string]Format{
		"faststream-binary.jsonl": FormatFastStream, "faststream-json.jsonl": FormatFastStreamJSON,
	} {
		readers := map[string]said{}
		for _, line := range captures[publishedLine](t, "faststream-binary.jsonl") {
			for _, s := range line.Said {
				if line.Step == "read by its own consumer, group at 0" {
					readers[s.CorrelationID] = s
				}
			}
		}
		seen := 0
		for _, line := range captures[publishedLine](t, file) {
			data, ok := line.Entry[wire.FieldEnvelope]
			if line.Published == nil || !ok {
				continue
			}
			seen++
			about := file + " " + line.Published.CorrelationID
			got, headers, body, err := wire.DecodeEnvelope(data)
			require.NoError(t, err, about)
			require.Equal(t, format, got, about)
			e := wire.Entry{Headers: headers, Payload: body}
			reader, known := readers[line.Published.CorrelationID]
			switch {
			case line.Published.CorrelationID == "c-10": // FastStream itself loses what follows the first two bytes
				require.Equal(t, "ü值", headers["name"], about)
				require.Equal(t, "non-ascii header", string(body), about)
			case line.Published.CorrelationID == "c-11": // only JSON carries a header that is no string
				require.Equal(t, "5", headers["n"], about)
			case known:
				reader.check(t, &e, about)
			default:
				require.NotEmpty(t, headers[FastStreamCorrelationID], about)
				require.Equal(t, "no id given", string(body), about)
			}
			again := wire.EncodeEnvelope(format, headers, body)
			switch about {
			case "faststream-binary.jsonl c-10":
				_, headers, _, err := wire.DecodeEnvelope(again)
				require.NoError(t, err)
				require.Equal(t, "ü值", headers["name"])
				require.Equal(t, len(data), len(again), "only the length of the value is another")
			case "faststream-json.jsonl c-11":
			default:
				require.Equal(t, string(data), string(again), about)
			}
		}
		require.GreaterOrEqual(t, seen, 12, file)
	}
}

type toleranceLine struct {
	Written string
	Entry   map[string]captured
	Reader  string
	Got     []said
	Pending int
}

// What FastStream's reader made of entries that others added is what a subscriber in its format makes of them.
func TestWhatFastStreamTolerates(t *testing.T) {
	t.Parallel()
	r := fence.Reader{Src: core.Source{Topic: "s", Single: true}, Format: FormatFastStream}
	for _, line := range captures[toleranceLine](t, "faststream-tolerance.jsonl") {
		about := line.Written + ", read by " + line.Reader
		var fields []string
		for name, value := range line.Entry {
			fields = append(fields, name, string(value))
		}
		e, err := r.Decode(wire.Raw{Id: "1700000000000-0", Fields: fields})
		binary := bytes.HasPrefix(line.Entry[wire.FieldEnvelope], []byte(wire.EnvelopeSign+"\x00\x01"))
		switch {
		case strings.HasPrefix(line.Written, "streammq fields"): // ours are ours, also where FastStream fails
			require.NoError(t, err, about)
			require.Equal(t, string(line.Entry[wire.FieldPayload]), string(e.Payload), about)
			require.Equal(t, FormatOwn, e.Format)
		case line.Pending == 1: // FastStream's handler never gets it; it stays pending there, and is a dead letter here
			require.ErrorIs(t, err, ErrMalformed, about)
		case binary && line.Reader == "0.6.7 JSON": // it does not know the binary envelope
			require.Equal(t, FormatFastStream, e.Format, about)
		default:
			require.NoError(t, err, about)
			published := (&fence.Parcel{Raw: wire.Raw{Id: "1700000000000-0"}, Entry: e}).Published()
			require.Equal(t, int64(1700000000000), published.UnixMilli(), about)
			line.Got[0].check(t, &e, about)
		}
	}
}

// Without a format set, what has neither a payload nor an envelope is nobody's.
func TestEntriesWithoutAnEnvelopeNeedTheFormat(t *testing.T) {
	t.Parallel()
	r := fence.Reader{Src: core.Source{Topic: "s", Single: true}}
	for name, fields := range map[string][]string{
		"data alone": {"data", "1"}, "an empty envelope": {wire.FieldEnvelope, ""}, "odd": {wire.FieldEnvelope, "x", "y"}, "not UTF-8": {"a", "\xff"},
	} {
		_, err := r.Decode(wire.Raw{Id: "1-1", Fields: fields})
		if name != "odd" {
			require.ErrorIs(t, err, ErrMalformed, name)
		}
		lenient := r
		lenient.Format = FormatFastStreamJSON
		e, err := lenient.Decode(wire.Raw{Id: "1-1", Fields: fields})
		if name == "not UTF-8" {
			require.ErrorIs(t, err, ErrMalformed, name)
			continue
		}
		require.NoError(t, err, name)
		require.NotEqual(t, FormatOwn, e.Format)
	}
	// On a topic it is no envelope at all.
	_, err := (&fence.Reader{Src: core.Source{Topic: "t"}}).Decode(wire.Raw{Id: "1-1", Fields: []string{wire.FieldEnvelope, "x"}})
	require.ErrorIs(t, err, ErrMalformed)
}

// Lengths in characters, as FastStream writes them, are told from lengths in bytes by where the body starts.
func TestLengthsInCharacters(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"a": "значение", "ключ": "v", "🎉": "🎉🎉", "z": ""}
	right := wire.EncodeEnvelope(FormatFastStream, headers, []byte("body"))
	wrong := append([]byte{}, right...)
	at := wire.EnvelopeHead + 2
	for range 2 * len(headers) {
		n := int(right[at])<<8 | int(right[at+1])
		wrong[at], wrong[at+1] = 0, byte(utf8.RuneCount(right[at+2:at+2+n]))
		at += 2 + n
	}
	require.NotEqual(t, right, wrong)
	for _, b := range [][]byte{right, wrong} {
		format, got, body, err := wire.DecodeEnvelope(b)
		require.NoError(t, err)
		require.Equal(t, FormatFastStream, format)
		require.Equal(t, headers, got)
		require.Equal(t, "body", string(body))
	}
	// Headers that nobody can read do not cost the body.
	broken := append([]byte{}, right...)
	broken[wire.EnvelopeHead+2] = 0xff
	_, got, body, err := wire.DecodeEnvelope(broken)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, "body", string(body))
	// What says that it starts behind its end is no envelope.
	broken = append([]byte{}, right...)
	broken[wire.EnvelopeHead-4] = 1
	format, _, body, err := wire.DecodeEnvelope(broken)
	require.NoError(t, err)
	require.Equal(t, FormatOwn, format)
	require.Equal(t, broken, body)
}

func FuzzEnvelope(f *testing.F) {
	f.Add(wire.EncodeEnvelope(FormatFastStream, map[string]string{"a": "b"}, []byte("x")))
	f.Add(wire.EncodeEnvelope(FormatFastStreamJSON, map[string]string{"a": "b\x00\x7f🎉"}, []byte("x")))
	f.Add([]byte(`{"data":"x","headers":{"n":5,"o":{},"z":null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		format, headers, body, err := wire.DecodeEnvelope(b)
		if err != nil || format == FormatOwn {
			return
		}
		again, sameHeaders, sameBody, err := wire.DecodeEnvelope(wire.EncodeEnvelope(format, headers, body))
		require.NoError(t, err)
		require.Equal(t, format, again)
		require.Equal(t, len(headers), len(sameHeaders))
		for name, value := range headers {
			require.Equal(t, value, sameHeaders[name])
		}
		require.Equal(t, string(body), string(sameBody))
	})
}
