package wire

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

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
