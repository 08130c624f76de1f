package proto

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// A worker reads an entry of Redis or a record of Kafka for each task. What this release writes itself into them is read, and
// into entries written, here: without the machinery for JSON and for reflection, and with the same meaning (FuzzQuick).

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
	ascii := true
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.ValidString(s) && !strings.ContainsAny(s, "\u2028\u2029\ufffd")
}

// quickEnvelope reads an envelope as Encode writes it; false: the codec is to read it. The text is UTF-8.
func quickEnvelope(text string) (*TaskEnvelope, bool) {
	e := &TaskEnvelope{}
	r := scanner{text}
	return e, r.object(e.quickMember) && r.rest == "" && checkEnvelope(e) == nil
}

// quickMember reads the member of that name; false: it is not as Encode writes it.
func (e *TaskEnvelope) quickMember(name string, r *scanner) (ok bool) {
	switch name {
	case "schemaVersion":
		e.SchemaVersion, ok = r.number()
		return ok && e.SchemaVersion == SchemaVersion
	case payloadName:
		value, ok := r.value()
		if !ok || len(value) > MaxPayload {
			return false
		}
		e.Payload = Payload([]byte(value))
		return e.Payload != nil
	case contextName:
		value, ok := r.value()
		if ok {
			e.Context = quickContext(value)
		}
		return e.Context != nil
	case "retry":
		e.Retry = &TaskRetry{}
		return r.object(e.Retry.quickMember)
	case "createdAt":
		e.CreatedAt, ok = r.stamp()
		return ok
	case "updatedAt":
		e.UpdatedAt, ok = r.stamp()
		return ok
	}
	into := e.quickText(name)
	if into == nil {
		return false
	}
	*into, ok = r.text()
	return ok
}

// quickText is where the text of that name goes; nil: there is none.
func (e *TaskEnvelope) quickText(name string) *string {
	switch name {
	case "taskId":
		return &e.TaskId
	case "type":
		return &e.Type
	case "workflowId":
		return &e.WorkflowId
	case "source":
		return &e.Source
	case "channel":
		return &e.Channel
	case "chatId":
		return &e.ChatId
	case "userId":
		return &e.UserId
	case "documentId":
		return &e.DocumentId
	case "filePath":
		return &e.FilePath
	case "idempotencyKey":
		return &e.IdempotencyKey
	case "status":
		return &e.Status
	}
	return nil
}

// quickMember is that of a TaskEnvelope.
func (t *TaskRetry) quickMember(name string, r *scanner) (ok bool) {
	switch name {
	case "count":
		t.Count, ok = r.number()
	case "max":
		t.Max, ok = r.number()
	case "nextAttemptAt":
		t.NextAttemptAt, ok = r.stamp()
	}
	return ok
}

// scanner walks over JSON without white space and escapes. Each of its methods reads one thing; false: it is something else.
type scanner struct{ rest string }

// take reads one character.
func (r *scanner) take(c byte) bool {
	if r.rest == "" || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// text reads a string that is its own JSON.
func (r *scanner) text() (string, bool) {
	if !r.take('"') {
		return "", false
	}
	end := strings.IndexByte(r.rest, '"')
	if end < 0 || !plain(r.rest[:end]) {
		return "", false
	}
	text := r.rest[:end]
	r.rest = r.rest[end+1:]
	return text, true
}

// number reads a whole number from 0 to 999,999,999.
func (r *scanner) number() (int32, bool) {
	n, at := int32(0), 0
	for ; at < len(r.rest) && at < 9 && '0' <= r.rest[at] && r.rest[at] <= '9'; at++ {
		n = 10*n + int32(r.rest[at]-'0')
	}
	if at == 0 || at > 1 && r.rest[0] == '0' {
		return 0, false
	}
	r.rest = r.rest[at:]
	return n, true // a tenth digit, a fraction or an exponent is no end of a member: the object is not read
}

// stamp reads a time in UTC.
func (r *scanner) stamp() (*timestamppb.Timestamp, bool) {
	text, ok := r.text()
	if !ok || len(text) > len("2006-01-02T15:04:05.999999999Z") || !strings.HasSuffix(text, "Z") || strings.Contains(text, ",") {
		return nil, false
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1 {
		return nil, false
	}
	return timestamppb.New(t), true
}

// value reads any value and leaves it as it is; whether it is JSON is for its reader to say.
func (r *scanner) value() (string, bool) {
	depth, quoted := 0, false
	for i := range len(r.rest) {
		c := r.rest[i]
		switch {
		case c == '\\':
			return "", false
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']') && depth > 0:
			depth--
		case (c == ',' || c == '}') && depth == 0:
			value := r.rest[:i]
			r.rest = r.rest[i:]
			return value, value != ""
		}
	}
	return "", false
}

// object reads an object whose members member reads, each name once.
func (r *scanner) object(member func(name string, r *scanner) bool) bool {
	if !r.take('{') {
		return false
	}
	if r.take('}') {
		return true
	}
	var seen [maxQuick]string
	for n := range seen {
		name, ok := r.text()
		if !ok || !r.take(':') {
			return false
		}
		for _, before := range seen[:n] {
			if before == name {
				return false
			}
		}
		if seen[n] = name; !member(name, r) {
			return false
		}
		if r.take('}') {
			return true
		}
		if !r.take(',') {
			return false
		}
	}
	return false
}

// maxQuick is at least the members of an envelope.
const maxQuick = 20
