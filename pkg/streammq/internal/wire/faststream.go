package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

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

// FieldEnvelope is the one field of FastStream's entries. It ignores others beside it: there lies what only we read.
const FieldEnvelope = "__data__"

func Known(f Format) bool {
	return f == FormatOwn || f == FormatFastStream || f == FormatFastStreamJSON
}

// enveloped are the names and values of an entry in FastStream's format.
func (e *Entry) enveloped() []string {
	f := []string{FieldEnvelope, string(EncodeEnvelope(e.Format, e.Headers, e.Payload))}
	if e.Key != "" {
		f = append(f, FieldKey, e.Key)
	}
	if e.MaxRetries > 0 {
		f = append(f, FieldMaxRetries, EncodeAttempts(e.MaxRetries))
	}
	if e.OriginalID != "" {
		f = append(f, FieldRetryCount, strconv.Itoa(e.RetryCount), FieldOriginalID, e.OriginalID)
	}
	return f
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
