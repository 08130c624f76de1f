package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// DecodeHeaders reads a JSON object of texts; its texts may share the memory of s. Numbers and booleans become texts, as
// in Java, and null is left out. Objects and lists among the values are an error.
func DecodeHeaders(s string) (map[string]string, error) {
	if s == "" || s == "{}" {
		return nil, nil
	}
	if headers, ok := PlainHeaders(s); ok {
		return headers, nil
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &values); err != nil {
		return nil, err
	}
	headers := make(map[string]string, len(values))
	for name, value := range values {
		switch text := string(value); text[0] {
		case '{', '[':
			return nil, fmt.Errorf("header %q: %w: a text is needed", model.Clip(name, 32), model.ErrHeader)
		case '"':
			if err := json.Unmarshal(value, &text); err != nil {
				return nil, err
			}
			headers[name] = text
		case 'n': // null
		default:
			headers[name] = text
		}
	}
	return headers, nil
}

// PlainHeaders reads what nearly all messages have: an object of strings without escapes and without spaces between
// them. It returns false for everything else, which is for encoding/json to judge: every message passes here.
func PlainHeaders(s string) (map[string]string, bool) {
	if len(s) < 2 || s[0] != '{' || s[len(s)-1] != '}' || !utf8.ValidString(s) {
		return nil, false
	}
	headers := make(map[string]string, 4)
	for rest := s[1 : len(s)-1]; ; {
		name, after, ok := plainString(rest)
		if !ok || !strings.HasPrefix(after, ":") {
			return nil, false
		}
		value, after, ok := plainString(after[1:])
		if !ok {
			return nil, false
		}
		headers[name] = value
		if after == "" {
			return headers, true
		}
		if after[0] != ',' {
			return nil, false
		}
		rest = after[1:]
	}
}

// plainString reads a JSON string without escapes at the beginning of s, and what follows it.
func plainString(s string) (text, after string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], s[i+1:], true
		case c == '\\' || c < ' ':
			return "", s, false
		}
	}
	return "", s, false
}

// EncodeHeaders is json.Marshal without its sorting and reflection: every message passes here.
func EncodeHeaders(headers map[string]string) string {
	if len(headers) == 0 {
		return "{}"
	}
	b := make([]byte, 1, 96)
	b[0] = '{'
	for name, value := range headers {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendJSON(b, name)
		b = append(b, ':')
		b = appendJSON(b, value)
	}
	return string(append(b, '}'))
}

// appendJSON appends a JSON string. What is not valid UTF-8 becomes U+FFFD, as in json.Marshal.
func appendJSON(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// A payload lies in its entry, or beside its stream: this queue names it by payloadRef, the Java original by a header.

// PayloadJava is how the Java original says that the payload is where its header says.
const PayloadJava = "hash"

// Bring puts what lay beside the stream into the entry; the headers that told where go, since the payload may soon be gone.
// It returns what makes the message unreadable, and what the server did not say.
func (e *Entry) Bring(key string, r rueidis.RedisResult) (bad, err error) {
	text, err := r.ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return fmt.Errorf("%w: the payload %s beside the stream was removed", model.ErrMalformed, strconv.Quote(model.Clip(key, 256))), nil
	case stream.IsError(err, "WRONGTYPE"):
		return fmt.Errorf("%w: the payload %s beside the stream is no string", model.ErrMalformed, strconv.Quote(model.Clip(key, 256))), nil
	case err != nil:
		return nil, err
	}
	e.Payload = []byte(text)
	if e.PayloadRef == "" {
		e.Payload = unquoted(e.Payload)
		for _, name := range []string{model.HeaderPayloadRef, model.HeaderPayloadStorage, model.HeaderPayloadSize} {
			delete(e.Headers, name)
		}
	}
	return nil, nil
}

// unquoted is the text that a JSON string means; other payloads stay as they are.
func unquoted(payload []byte) []byte {
	text, err := jsonText(payload)
	if err != nil {
		return payload
	}
	return []byte(text)
}

var errNoText = errors.New("no JSON string")

func jsonText(payload []byte) (text string, err error) {
	if len(payload) < 2 || payload[0] != '"' {
		return "", errNoText
	}
	err = json.Unmarshal(payload, &text)
	return text, err
}

// Unwrap takes off the quotes that the Java original put around the payload: each of its retries writes it as JSON, a text as
// a JSON string. No more are taken than it has put the message off, so that a payload that is a JSON string stays one.
func (e *Entry) Unwrap() {
	if e.OriginalID == "" && e.Headers[model.HeaderOriginalID] == "" {
		return
	}
	ours := 0
	if _, of := e.Headers[model.HeaderRetryGroup]; of {
		ours = e.RetryCount // of an earlier version of this queue, which counted nothing
	}
	if n, ok := DecodeCount(e.Headers[model.HeaderRetryCount]); ok {
		ours = n
	}
	e.Payload = unwrapped(e.Payload, e.RetryCount-ours)
}

// unwrapped takes off at most n layers of quotes.
func unwrapped(payload []byte, n int) []byte {
	for ; n > 0; n-- {
		text, err := jsonText(payload)
		if err != nil {
			break
		}
		payload = []byte(text)
	}
	return payload
}
