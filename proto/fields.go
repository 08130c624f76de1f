package proto

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Field is one field of a stream entry.
type Field struct{ Name, Value string }

// firstFields are always there and come first: what a person looks for with XRANGE.
var firstFields = [...]string{"taskId", "userId", "documentId", "filePath"}

// EncodeFields renders e as the fields of a stream entry, each a string: texts as they are, times in RFC 3339,
// nested members as JSON. taskId, userId, documentId and filePath come first and are there even when empty.
// Errors as those of Encode.
func EncodeFields(e *TaskEnvelope) ([]Field, error) {
	members, err := envelopeMembers(e)
	if err != nil {
		return nil, err
	}
	fields := make([]Field, len(firstFields), len(firstFields)+len(members))
	for i, name := range firstFields {
		fields[i].Name = name
	}
	size := 0
next:
	for _, m := range members {
		value, err := fieldValue(m)
		if err != nil {
			return nil, err
		}
		size += len(m.name) + len(value)
		for i, name := range firstFields {
			if m.name == name {
				fields[i].Value = value
				continue next
			}
		}
		fields = append(fields, Field{m.name, value})
	}
	return fields, checkSize(size)
}

// fieldValue takes the quotes off strings; all else stays JSON.
func fieldValue(m member) (string, error) {
	if len(m.value) == 0 || m.value[0] != '"' || m.name == "payload" {
		return string(m.value), nil
	}
	var s string
	if err := json.Unmarshal(m.value, &s); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrMalformed, m.name, err)
	}
	return s, nil
}

// DecodeFields reads an envelope out of the fields of a stream entry.
// Empty values are members that are not set. A field that this release does not know is kept:
// as JSON if it is a JSON object or array, as a string otherwise.
// Errors as those of Decode.
func DecodeFields(fields map[string]string) (*TaskEnvelope, error) {
	known := (*TaskEnvelope)(nil).ProtoReflect().Descriptor().Fields()
	object := make(map[string]jsonText, len(fields))
	size := 0
	for name, value := range fields {
		size += len(name) + len(value)
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("%w: field %q is not UTF-8", ErrMalformed, name)
		}
		field := known.ByJSONName(name)
		if field == nil {
			field = known.ByTextName(name)
		}
		if value == "" && field != nil {
			continue
		}
		text, err := fieldText(field, value)
		if err != nil {
			return nil, fmt.Errorf("%w: field %s: %w", ErrMalformed, name, err)
		}
		object[name] = text
	}
	if err := checkSize(size); err != nil {
		return nil, err
	}
	return decodeObject(object)
}

// fieldText turns a field's string into the member's JSON; field is nil for an unknown one.
func fieldText(field protoreflect.FieldDescriptor, value string) (jsonText, error) {
	isJSON := false
	switch {
	case field == nil:
		isJSON = (value != "" && (value[0] == '{' || value[0] == '[')) && json.Valid([]byte(value))
	case field.JSONName() == "payload", isOurs(field):
		isJSON = true
	}
	if !isJSON {
		return stringText(value) // protojson also reads numbers and times out of strings
	}
	if !json.Valid([]byte(value)) {
		return nil, fmt.Errorf("not JSON")
	}
	return jsonText(value), nil
}
