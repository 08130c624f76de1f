package proto

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// What this release itself writes is read here, member by member, without the machinery for JSON: a worker reads an entry
// for each task. Whatever looks different in any way is left to the codec, with the same meaning (FuzzQuick).

// longestStamp is RFC 3339 in UTC with nanoseconds.
const longestStamp = len("2006-01-02T15:04:05.000000000Z")

// quick reads the value of one field, which is not empty, into e; false: the codec is to read it.
func quick(e *TaskEnvelope, name, value string) bool {
	if text := textMember(e, name); text != nil {
		*text = value
		return true
	}
	switch name {
	case "schemaVersion":
		return quickNumber(value, &e.SchemaVersion)
	case "createdAt":
		return quickStamp(value, &e.CreatedAt)
	case "updatedAt":
		return quickStamp(value, &e.UpdatedAt)
	case "context":
		c := &TaskContext{}
		if !quickObject(value, func(name, value string, quoted bool) bool { return quoted && quickContext(c, name, value) }) {
			return false
		}
		e.Context = c
		return true
	case "retry":
		r := &TaskRetry{}
		if !quickObject(value, func(name, value string, quoted bool) bool { return quickRetry(r, name, value, quoted) }) {
			return false
		}
		e.Retry = r
		return true
	case payloadName:
		v, ok := quickPayload(value)
		e.Payload = v
		return ok
	}
	return false
}

// quickPayload reads a flat object of texts, small whole numbers, true and false, which is what uploads carry.
func quickPayload(text string) (*structpb.Value, bool) {
	if len(text) > MaxPayload {
		return nil, false
	}
	members := map[string]*structpb.Value{}
	ok := quickObject(text, func(name, value string, quoted bool) bool {
		var n int32
		switch {
		case quoted:
			members[name] = structpb.NewStringValue(value)
		case value == "true", value == "false":
			members[name] = structpb.NewBoolValue(value == "true")
		case quickNumber(value, &n):
			members[name] = structpb.NewNumberValue(float64(n))
		default:
			return false
		}
		return true
	})
	if !ok {
		return nil, false
	}
	return structpb.NewStructValue(&structpb.Struct{Fields: members}), true
}

// textMember is the text of that JSON name; nil: there is none.
func textMember(e *TaskEnvelope, name string) *string {
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

// quickContext sets one member of a context.
func quickContext(c *TaskContext, name, value string) bool {
	switch name {
	case "requestId":
		c.RequestId = value
	case "traceparent":
		c.Traceparent = value
	case "user":
		c.User = value
	default:
		return false
	}
	return true
}

// quickRetry sets one member of a retry.
func quickRetry(r *TaskRetry, name, value string, quoted bool) bool {
	switch {
	case name == "count" && !quoted:
		return quickNumber(value, &r.Count)
	case name == "max" && !quoted:
		return quickNumber(value, &r.Max)
	case name == "nextAttemptAt" && quoted:
		return quickStamp(value, &r.NextAttemptAt)
	}
	return false
}

// quickNumber reads at most nine digits without leading zeros.
func quickNumber(text string, to *int32) bool {
	if len(text) == 0 || len(text) > 9 || (text[0] == '0' && len(text) > 1) {
		return false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	n, err := strconv.ParseInt(text, 10, 32)
	*to = int32(n)
	return err == nil
}

// quickStamp reads a time in UTC.
func quickStamp(text string, to **timestamppb.Timestamp) bool {
	if len(text) > longestStamp || !strings.HasSuffix(text, "Z") || strings.Contains(text, ",") {
		return false
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1 {
		return false
	}
	*to = timestamppb.New(t)
	return true
}

// quickObject reads a flat object without white space, of plain texts and whole numbers, each name once; put takes its members.
func quickObject(text string, put func(name, value string, quoted bool) bool) bool {
	rest, ok := strings.CutPrefix(text, "{")
	if !ok {
		return false
	}
	if rest == "}" {
		return true
	}
	var seen []string
	for {
		var name, value string
		if name, rest, ok = quickText(rest); !ok || !strings.HasPrefix(rest, ":") {
			return false
		}
		for _, s := range seen {
			if s == name {
				return false
			}
		}
		seen = append(seen, name)
		rest = rest[1:]
		quoted := strings.HasPrefix(rest, `"`)
		if quoted {
			value, rest, ok = quickText(rest)
		} else {
			end := strings.IndexAny(rest, ",}")
			if ok = end > 0; ok {
				value, rest = rest[:end], rest[end:]
			}
		}
		if !ok || !put(name, value, quoted) {
			return false
		}
		switch {
		case rest == "}":
			return true
		case !strings.HasPrefix(rest, ","):
			return false
		}
		rest = rest[1:]
	}
}

// quickText reads a quoted text without escapes at the beginning.
func quickText(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", false
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[1:i], text[i+1:], true
		case c == '\\' || c < ' ':
			return "", "", false
		}
	}
	return "", "", false
}
