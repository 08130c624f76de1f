package proto

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A worker reads an entry for each task. What this release writes itself into deliveries on Redis is read and written
// here, without the machinery for JSON and for reflection, and with the same meaning (FuzzQuick).

// quick reads one field into e; false: the codec is to read it.
func quick(e *TaskEnvelope, name, value string) bool {
	switch name {
	case "taskId":
		e.TaskId = value
	case "type":
		e.Type = value
	case "source":
		e.Source = value
	case "userId":
		e.UserId = value
	case "documentId":
		e.DocumentId = value
	case "filePath":
		e.FilePath = value
	case "schemaVersion":
		if value != strconv.Itoa(SchemaVersion) {
			return false
		}
		e.SchemaVersion = SchemaVersion
	case contextName:
		e.Context = quickContext(value)
		return e.Context != nil
	default:
		return false
	}
	return true
}

// contextMembers are the texts of a context, in the order in which they are written.
var contextMembers = [...]struct {
	name string
	of   func(*TaskContext) *string
}{
	{"requestId", func(c *TaskContext) *string { return &c.RequestId }},
	{"traceparent", func(c *TaskContext) *string { return &c.Traceparent }},
	{"user", func(c *TaskContext) *string { return &c.User }},
}

// quickContext reads a context as this release writes it; nil: the codec is to read it.
func quickContext(text string) *TaskContext {
	c := &TaskContext{}
	rest, before := text, "{"
	for _, m := range contextMembers {
		value, ok := strings.CutPrefix(rest, before+`"`+m.name+`":"`)
		if !ok {
			continue
		}
		end := strings.IndexByte(value, '"')
		if end < 0 || !plain(value[:end]) {
			return nil
		}
		*m.of(c), rest, before = value[:end], value[end+1:], ","
	}
	if rest != "}" || before == "{" {
		return nil
	}
	return c
}

// quickContextText writes a context; false: the codec is to write it.
func quickContextText(c *TaskContext) (string, bool) {
	if len(c.ProtoReflect().GetUnknown()) > 0 {
		return "", false
	}
	b, before := make([]byte, 0, 160), byte('{')
	for _, m := range contextMembers {
		value := *m.of(c)
		if !plain(value) {
			return "", false
		}
		if value != "" {
			b = append(append(append(b, before, '"'), m.name...), `":"`...)
			b, before = append(append(b, value...), '"'), ','
		}
	}
	if before == '{' {
		b = append(b, before)
	}
	return string(append(b, '}')), true
}

// plain reports whether a text is its own JSON, without its quotes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.ValidString(s) && !strings.ContainsAny(s, "\u2028\u2029\ufffd")
}
