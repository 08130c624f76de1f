package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
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
	headers, nested, err := jsonTexts([]byte(s))
	if err == nil && nested != "" {
		err = fmt.Errorf("header %q: %w: a text is needed", model.Clip(nested, 32), model.ErrHeader)
	}
	if err != nil {
		return nil, err
	}
	return headers, nil
}

// jsonTexts reads an object: texts as they are, other values as JSON, null left out. nested is the name of a value that is
// an object or list, "" when none is. headers is nil for null.
func jsonTexts(text []byte) (headers map[string]string, nested string, err error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil || values == nil {
		return nil, "", err
	}
	headers = make(map[string]string, len(values))
	for name, value := range values {
		var s *string
		if json.Unmarshal(value, &s) != nil {
			headers[name] = string(value)
			if value[0] == '{' || value[0] == '[' {
				nested = name
			}
		} else if s != nil {
			headers[name] = *s
		}
	}
	return headers, nested, nil
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
