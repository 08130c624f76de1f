package proto

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	protobuf "google.golang.org/protobuf/proto"
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
	e, err := writable(e)
	if err != nil {
		return nil, err
	}
	message := e.ProtoReflect()
	fields := make([]Field, len(firstFields), len(firstFields)+message.Descriptor().Fields().Len())
	size := 0
	put := func(name, value string) {
		size += len(name) + len(value)
		if i := slices.Index(firstFields[:], name); i >= 0 {
			fields[i].Value = value
			return
		}
		fields = append(fields, Field{name, value})
	}
	for i, name := range firstFields {
		fields[i].Name = name
	}
	err = eachMember(message, func(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
		s, err := fieldValue(field, value)
		put(field.JSONName(), s)
		return err
	})
	if err != nil {
		return nil, err
	}
	unknown, err := unknownMembers(message)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		s, err := unquoted(unknown[name])
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, name, err)
		}
		put(name, s)
	}
	return fields, checkSize(size)
}

// fieldValue takes texts and times as they are; all else is JSON.
func fieldValue(field protoreflect.FieldDescriptor, value protoreflect.Value) (string, error) {
	if field.Kind() == protoreflect.StringKind {
		s := value.String()
		if !utf8.ValidString(s) {
			return "", fmt.Errorf("%w: not UTF-8", ErrMalformed)
		}
		return s, nil
	}
	if field.JSONName() == contextName {
		if c, ok := value.Message().Interface().(*TaskContext); ok {
			if s, ok := quickContextText(c); ok {
				return s, nil
			}
		}
	}
	text, err := appendValue(nil, field, value)
	if err != nil || field.JSONName() == payloadName {
		return string(text), err
	}
	return unquoted(text)
}

// unquoted takes the quotes off a JSON string and leaves any other JSON as it is.
func unquoted(text jsonText) (string, error) {
	if len(text) == 0 || text[0] != '"' {
		return string(text), nil
	}
	var s string
	err := json.Unmarshal(text, &s)
	return s, err
}

// DecodeFields reads an envelope out of the fields of a stream entry.
// Empty values are members that are not set. A field that this release does not know is kept:
// as JSON if it is a JSON object or array, as a string otherwise.
// Errors as those of Decode.
func DecodeFields(fields map[string]string) (*TaskEnvelope, error) {
	e := &TaskEnvelope{}
	var rest map[string]string // what only the codec reads
	size := 0
	for name, value := range fields {
		size += len(name) + len(value)
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("%w: field %q is not UTF-8", ErrMalformed, name)
		}
		if quick(e, name, value) {
			continue
		}
		if rest == nil {
			rest = map[string]string{}
		}
		rest[name] = value
	}
	if err := checkSize(size); err != nil {
		return nil, err
	}
	if err := slow(e, fields, rest); err != nil {
		return nil, err
	}
	if e.SchemaVersion == 0 {
		e.SchemaVersion = 1
	}
	return e, checkEnvelope(e)
}

// slow reads the rest of all fields into e.
func slow(e *TaskEnvelope, all, rest map[string]string) error {
	message := e.ProtoReflect()
	known := message.Descriptor().Fields()
	object := map[string]jsonText{}
	for name, value := range rest {
		field := known.ByJSONName(name)
		if field == nil {
			if field = known.ByTextName(name); field != nil && all[field.JSONName()] != "" {
				continue // the JSON name wins
			}
		}
		switch {
		case field == nil:
			object[name] = unknownText(value)
		case value == "":
		case field.Kind() == protoreflect.StringKind:
			message.Set(field, protoreflect.ValueOfString(value))
		default:
			text, err := fieldText(field, value)
			if err != nil {
				return fmt.Errorf("%w: field %s: %w", ErrMalformed, name, err)
			}
			object[field.JSONName()] = text
		}
	}
	if len(object) == 0 {
		return nil
	}
	other := &TaskEnvelope{}
	if err := fill(other, object); err != nil {
		return err
	}
	if _, said := object["schemaVersion"]; !said {
		other.SchemaVersion = 0
	}
	protobuf.Merge(e, other) // they share no member
	return nil
}

// fieldText turns a field's string into the member's JSON.
func fieldText(field protoreflect.FieldDescriptor, value string) (jsonText, error) {
	if field.JSONName() != payloadName && !isOurs(field) {
		return stringText(value) // protojson also reads numbers and times out of strings
	}
	if !json.Valid([]byte(value)) {
		return nil, errors.New("not JSON")
	}
	return jsonText(value), nil
}

// unknownText keeps an object or array as it is; value is UTF-8.
func unknownText(value string) jsonText {
	if value != "" && (value[0] == '{' || value[0] == '[') && json.Valid([]byte(value)) {
		return jsonText(value)
	}
	text, _ := stringText(value)
	return text
}
