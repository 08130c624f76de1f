package proto

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// What tasks usually say is also written without the machinery for JSON, and to the same bytes (FuzzQuickValue).

// Payload is the payload that is this JSON; nil when it is not JSON.
func Payload(text []byte) *structpb.Value {
	if v, ok := quickPayload(string(text)); ok && utf8.Valid(text) {
		return v
	}
	v := &structpb.Value{}
	if v.UnmarshalJSON(text) != nil {
		return nil
	}
	return v
}

// quickValue is the value of one field of a stream entry; false: the codec is to write it.
func quickValue(e *TaskEnvelope, name string) (string, bool) {
	switch name {
	case "createdAt":
		return quickStampText(e.CreatedAt)
	case "updatedAt":
		return quickStampText(e.UpdatedAt)
	case "context":
		return quickContextText(e.Context)
	case "retry":
		return quickRetryText(e.Retry)
	case payloadName:
		return quickPayloadText(e.Payload)
	}
	return "", false
}

// quickStampText is a time in UTC with 0, 3, 6 or 9 digits of the second, as the mapping to JSON wants it.
func quickStampText(t *timestamppb.Timestamp) (string, bool) {
	if !t.IsValid() || len(t.ProtoReflect().GetUnknown()) > 0 {
		return "", false
	}
	s := t.AsTime().Format("2006-01-02T15:04:05.000000000")
	s = strings.TrimSuffix(strings.TrimSuffix(s, "000"), "000")
	return strings.TrimSuffix(s, ".000") + "Z", true
}

func quickContextText(c *TaskContext) (string, bool) {
	if len(c.ProtoReflect().GetUnknown()) > 0 {
		return "", false
	}
	var w objectWriter
	w.optional("requestId", c.RequestId)
	w.optional("traceparent", c.Traceparent)
	w.optional("user", c.User)
	return w.end()
}

func quickRetryText(r *TaskRetry) (string, bool) {
	if len(r.ProtoReflect().GetUnknown()) > 0 {
		return "", false
	}
	var w objectWriter
	for _, m := range []struct {
		name  string
		value int32
	}{{"count", r.Count}, {"max", r.Max}} {
		if m.value != 0 {
			w.raw(m.name, strconv.Itoa(int(m.value)))
		}
	}
	if r.NextAttemptAt != nil {
		stamp, ok := quickStampText(r.NextAttemptAt)
		w.failed = w.failed || !ok
		w.text("nextAttemptAt", stamp)
	}
	return w.end()
}

func quickPayloadText(v *structpb.Value) (string, bool) {
	object, ok := v.GetKind().(*structpb.Value_StructValue)
	if !ok || object.StructValue == nil {
		return "", false
	}
	var w objectWriter
	members := object.StructValue.Fields
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch m := members[name].GetKind().(type) {
		case *structpb.Value_StringValue:
			w.text(name, m.StringValue)
		case *structpb.Value_BoolValue:
			w.raw(name, strconv.FormatBool(m.BoolValue))
		case *structpb.Value_NumberValue:
			w.number(name, m.NumberValue)
		default:
			return "", false
		}
	}
	text, ok := w.end()
	return text, ok && len(text) <= MaxPayload
}

// objectWriter writes a flat object of what needs no escape; anything else fails it.
type objectWriter struct {
	b      strings.Builder
	failed bool
}

// optional writes a text that is not empty.
func (w *objectWriter) optional(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *objectWriter) text(name, value string) {
	if !plain(value) {
		w.failed = true
		return
	}
	w.raw(name, `"`+value+`"`)
}

// number writes a whole number below a thousand million.
func (w *objectWriter) number(name string, v float64) {
	if v != math.Trunc(v) || math.Abs(v) >= 1e9 || (v == 0 && math.Signbit(v)) {
		w.failed = true
		return
	}
	w.raw(name, strconv.FormatInt(int64(v), 10))
}

// raw writes a member whose value is JSON already.
func (w *objectWriter) raw(name, value string) {
	if !plain(name) {
		w.failed = true
		return
	}
	open := ","
	if w.b.Len() == 0 {
		open = "{"
	}
	for _, s := range [...]string{open, `"`, name, `":`, value} {
		w.b.WriteString(s)
	}
}

// end returns the object; false: something did not fit.
func (w *objectWriter) end() (string, bool) {
	if w.b.Len() == 0 {
		w.b.WriteByte('{')
	}
	w.b.WriteByte('}')
	return w.b.String(), !w.failed
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
