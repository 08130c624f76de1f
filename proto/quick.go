package proto

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A worker reads an entry for each task. What this release writes itself into deliveries on Redis is read and written
// here, without the machinery for JSON and for reflection, and with the same meaning (FuzzQuick).

// Glance finds the task that an entry of Redis names, and whether DecodeFields reads the entry without an error: so the rest can
// be read when somebody asks. The zero one has seen no field.
type Glance struct {
	task       string
	seen, size int // seen: a bit for each name
}

// Field looks at one field; false: only DecodeFields can tell, as of an entry that another release has written.
func (g *Glance) Field(name, value string) bool {
	bit := 0
	switch name {
	case "taskId":
		g.task, bit = value, 1
	case "type":
		bit = 1 << 1
	case "source":
		bit = 1 << 2
	case "userId":
		bit = 1 << 3
	case "documentId":
		bit = 1 << 4
	case "filePath":
		bit = 1 << 5
	case "schemaVersion":
		if value == ownVersion {
			bit = 1 << 6
		}
	case contextName:
		if _, plain := quickTexts(value); plain {
			bit = 1 << 7
		}
	}
	if bit == 0 || g.seen&bit != 0 || !utf8.ValidString(value) {
		return false
	}
	g.seen |= bit
	g.size += len(name) + len(value)
	return true
}

// Task is the task, after all fields; false: only DecodeFields can tell.
func (g *Glance) Task() (id string, ok bool) { return g.task, g.task != "" && checkSize(g.size) == nil }

// ownVersion is SchemaVersion as a field.
var ownVersion = strconv.Itoa(SchemaVersion)

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
		if value != ownVersion {
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
	texts, ok := quickTexts(text)
	if !ok {
		return nil
	}
	c := &TaskContext{}
	for i, m := range contextMembers {
		*m.of(c) = texts[i]
	}
	return c
}

// quickTexts are the members of a context as this release writes it; false: the codec is to read it.
func quickTexts(text string) (texts [len(contextMembers)]string, ok bool) {
	rest, before := text, byte('{')
	for i := range contextMembers {
		name := contextMembers[i].name
		if len(rest) < len(name)+5 || rest[0] != before || rest[1] != '"' || rest[2:2+len(name)] != name || rest[2+len(name):len(name)+5] != `":"` {
			continue
		}
		value := rest[len(name)+5:]
		end := strings.IndexByte(value, '"')
		if end < 0 || !plain(value[:end]) {
			return texts, false
		}
		texts[i], rest, before = value[:end], value[end+1:], ','
	}
	return texts, rest == "}" && before != '{'
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
