package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// The binary envelope, big-endian: sign, version (2 bytes), where the headers start and where the body does (4 each); at the
// headers their count (2), then of each a name and a value, both with their length (2) before them; the body goes to the end.
const (
	EnvelopeSign    = "\x89BIN\r\n\x1a\n"
	envelopeVersion = 1
	EnvelopeHead    = len(EnvelopeSign) + 2 + 4 + 4
)

// firstHeaders is the order in which FastStream writes its headers; all others follow, by name.
var firstHeaders = []string{FastStreamCorrelationID, model.HeaderContentType, FastStreamReplyTo, model.HeaderUUID}

func orderedHeaders(headers map[string]string) []string {
	names := make([]string, 0, len(headers))
	for _, name := range firstHeaders {
		if _, ok := headers[name]; ok {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !slices.Contains(firstHeaders, name) {
			names = append(names, name)
		}
	}
	return names
}

// EncodeEnvelope writes a message as FastStream does. A body that JSON cannot carry goes into the binary envelope.
func EncodeEnvelope(format Format, headers map[string]string, body []byte) []byte {
	names := orderedHeaders(headers)
	if format == FormatFastStreamJSON && utf8.Valid(body) {
		b := appendPythonJSON([]byte(`{"data": `), string(body))
		b = append(b, `, "headers": {`...)
		for i, name := range names {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendPythonJSON(append(appendPythonJSON(b, name), ": "...), headers[name])
		}
		return append(b, "}}"...)
	}
	var area []byte
	for _, name := range names {
		for _, text := range []string{name, headers[name]} { // in bytes: FastStream itself counts characters, and reads bytes
			area = binary.BigEndian.AppendUint16(area, uint16(len(text))) //nolint:gosec // at most MaxHeaders
			area = append(area, text...)
		}
	}
	b := make([]byte, 0, EnvelopeHead+2+len(area)+len(body))
	b = append(b, EnvelopeSign...)
	b = binary.BigEndian.AppendUint16(b, envelopeVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(EnvelopeHead))
	b = binary.BigEndian.AppendUint32(b, uint32(EnvelopeHead+2+len(area))) //nolint:gosec // at most MaxHeaders
	b = binary.BigEndian.AppendUint16(b, uint16(len(names)))               //nolint:gosec // at most MaxHeaders
	return append(append(b, area...), body...)
}

// DecodeEnvelope reads what FastStream's readers read, in both formats. FormatOwn: there is no envelope, and the bytes are the
// body. What it returns shares no memory with b. Its error wraps ErrMalformed.
func DecodeEnvelope(b []byte) (format Format, headers map[string]string, body []byte, err error) {
	if headers, body, ok := decodeBinary(b); ok {
		return FormatFastStream, headers, bytes.Clone(body), nil
	}
	text, given, ok := jsonEnvelope(b)
	if !ok {
		return FormatOwn, nil, bytes.Clone(b), nil
	}
	if given != nil {
		if headers, _, err = jsonTexts(given); err != nil || headers == nil {
			err = fmt.Errorf("%w: headers of a FastStream message are no object: %.64q", model.ErrMalformed, given)
		}
	}
	return FormatFastStreamJSON, headers, []byte(text), err
}

// jsonEnvelope returns false for what is no object with a text as its data. headers is nil when there are none.
func jsonEnvelope(b []byte) (data string, headers json.RawMessage, ok bool) {
	var parts map[string]json.RawMessage
	var text *string
	if !utf8.Valid(b) || json.Unmarshal(b, &parts) != nil || json.Unmarshal(parts["data"], &text) != nil || text == nil {
		return "", nil, false
	}
	return *text, parts["headers"], true
}

// decodeBinary returns false for what is no binary envelope. Where the body starts is always right; the headers' lengths are
// bytes, or characters as FastStream writes them: those count that end where the body starts. If neither do, the headers are
// those that can be read.
func decodeBinary(b []byte) (headers map[string]string, body []byte, ok bool) {
	if len(b) < EnvelopeHead || string(b[:len(EnvelopeSign)]) != EnvelopeSign ||
		binary.BigEndian.Uint16(b[len(EnvelopeSign):]) != envelopeVersion {
		return nil, nil, false
	}
	headersAt := uint64(binary.BigEndian.Uint32(b[EnvelopeHead-8:]))
	bodyAt := uint64(binary.BigEndian.Uint32(b[EnvelopeHead-4:]))
	if headersAt+2 > bodyAt || bodyAt > uint64(len(b)) {
		return nil, nil, false
	}
	area := b[headersAt:bodyAt]
	count, area := int(binary.BigEndian.Uint16(area)), area[2:]
	headers, whole := readHeaders(area, count, byBytes)
	if !whole {
		if better, whole := readHeaders(area, count, byCharacters); whole {
			headers = better
		}
	}
	return headers, b[bodyAt:], true
}

// readHeaders reads names and values, whose ends take finds. It returns false when they do not fill the area, and what it read.
func readHeaders(area []byte, count int, take func(b []byte, n int) int) (map[string]string, bool) {
	headers := map[string]string{}
	text := func() (string, bool) {
		if len(area) < 2 {
			return "", false
		}
		n := take(area[2:], int(binary.BigEndian.Uint16(area)))
		if n < 0 || !utf8.Valid(area[2:2+n]) {
			return "", false
		}
		s := string(area[2 : 2+n])
		area = area[2+n:]
		return s, true
	}
	for range count {
		name, ok := text()
		if !ok {
			return headers, false
		}
		value, ok := text()
		if !ok {
			return headers, false
		}
		headers[name] = value
	}
	return headers, len(area) == 0
}

// byBytes is the length of n bytes at the beginning of b; -1: it has fewer.
func byBytes(b []byte, n int) int {
	if n > len(b) {
		return -1
	}
	return n
}

// byCharacters is the length of n characters at the beginning of b; -1: it has fewer.
func byCharacters(b []byte, n int) int {
	at := 0
	for range n {
		_, size := utf8.DecodeRune(b[at:])
		if size == 0 {
			return -1
		}
		at += size
	}
	return at
}

// appendPythonJSON appends a JSON string as Python's json.dumps writes it: all that is not ASCII is escaped.
func appendPythonJSON(b []byte, s string) []byte {
	const short = "\"\\\b\f\n\r\t"
	const names = "\"\\bfnrt"
	escape := func(unit uint16) {
		digits := strconv.FormatUint(uint64(unit)+1<<16, 16)
		b = append(append(b, '\\', 'u'), digits[1:]...)
	}
	b = append(b, '"')
	for _, r := range s {
		switch i := bytes.IndexRune([]byte(short), r); {
		case i >= 0:
			b = append(b, '\\', names[i])
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escape(uint16(high)) //nolint:gosec // a half of a pair
			escape(uint16(low))  //nolint:gosec // a half of a pair
		default:
			escape(uint16(r)) //nolint:gosec // it fits
		}
	}
	return append(b, '"')
}

// Format is how the entries of a single stream are written. They are read in every format, whatever is set.
type Format string

// The formats. A topic's partitions have FormatOwn only.
const (
	// FormatOwn is that of this package, see EncodeEntry.
	FormatOwn Format = ""
	// FormatFastStream is FastStream's binary envelope, which FastStream writes and reads from 0.6 on, by default from 0.7 on.
	FormatFastStream Format = "faststream"
	// FormatFastStreamJSON is FastStream's JSON envelope, the default up to 0.6, which later ones read. Its payloads are text.
	FormatFastStreamJSON Format = "faststream-json"
)

// Headers that FastStream reads or writes. Beside them it knows HeaderContentType.
const (
	// FastStreamCorrelationID joins a reply with its request. A message without it gets its uuid.
	FastStreamCorrelationID = "correlation_id"
	// FastStreamReplyTo is the Pub/Sub channel on which a reply is expected.
	FastStreamReplyTo = "reply_to"
)

func Known(f Format) bool {
	return f == FormatOwn || f == FormatFastStream || f == FormatFastStreamJSON
}

// DecodeFastStream reads the envelope of an entry; without one its body is a JSON object of all its fields, as FastStream
// reads it. standard is the format of what has none. Its error wraps ErrMalformed.
func DecodeFastStream(fields []string, data string, standard Format) (Entry, error) {
	var out Entry
	var err error
	body := []byte(data)
	if data == "" {
		if body, err = fieldsAsJSON(fields); err != nil {
			return out, err
		}
	}
	if out.Format, out.Headers, out.Payload, err = DecodeEnvelope(body); err != nil {
		return out, err
	}
	if out.Format == FormatOwn {
		if out.Format = standard; standard == FormatOwn {
			out.Format = FormatFastStream
		}
	}
	for i := 0; data != "" && i+1 < len(fields); i += 2 { // what is no number is somebody else's
		switch value := fields[i+1]; fields[i] {
		case FieldKey:
			out.Key = strings.Clone(value)
		case FieldMaxRetries:
			out.MaxRetries = decodeAttempts(value, true)
		case FieldRetryCount:
			out.RetryCount, _ = DecodeCount(value)
		case FieldOriginalID:
			out.OriginalID = strings.Clone(value)
		}
	}
	return out, nil
}

func fieldsAsJSON(fields []string) ([]byte, error) {
	if len(fields)%2 != 0 {
		return nil, fmt.Errorf("%w: %d names and values", model.ErrMalformed, len(fields))
	}
	b := []byte{'{'}
	for i := 0; i < len(fields); i += 2 {
		if !utf8.ValidString(fields[i]) || !utf8.ValidString(fields[i+1]) {
			return nil, fmt.Errorf("%w: field %q: not valid UTF-8", model.ErrMalformed, model.Clip(fields[i], 64))
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(appendJSON(b, fields[i]), ':'), fields[i+1])
	}
	return append(b, '}'), nil
}
