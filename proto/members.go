package proto

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unknownNumber is where a message in memory keeps the members that its type does not have:
// one length-delimited unknown field that holds a JSON object. The .proto reserves it.
const unknownNumber protowire.Number = 15000

// jsonText is one JSON value as text.
type jsonText = json.RawMessage

// member is one member of an object.
type member struct {
	name  string
	value jsonText
}

// eachMember calls put for the set members of m by their numbers; its errors get the member's name.
func eachMember(m protoreflect.Message, put func(protoreflect.FieldDescriptor, protoreflect.Value) error) error {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !m.Has(field) {
			continue
		}
		if err := put(field, m.Get(field)); err != nil {
			return fmt.Errorf("%s: %w", field.JSONName(), err)
		}
	}
	return nil
}

// listMembers lists the set members of m by their numbers, then the unknown ones by name.
func listMembers(m protoreflect.Message) ([]member, error) {
	var members []member
	err := eachMember(m, func(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
		text, err := memberText(field, value)
		members = append(members, member{field.JSONName(), text})
		return err
	})
	if err != nil {
		return nil, err
	}
	unknown, err := unknownMembers(m)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		members = append(members, member{name, unknown[name]})
	}
	return members, nil
}

func memberText(field protoreflect.FieldDescriptor, value protoreflect.Value) (jsonText, error) {
	switch {
	case field.Kind() == protoreflect.StringKind:
		return stringText(value.String())
	case isOurs(field):
		members, err := listMembers(value.Message())
		return appendObject(nil, members), err
	case field.Kind() == protoreflect.MessageKind:
		// protojson varies its white space on purpose.
		b, err := protojson.Marshal(value.Message().Interface())
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		text, err := compactText(b)
		if err == nil && field.JSONName() == payloadName {
			err = checkPayload(len(text))
		}
		return text, err
	default:
		return json.Marshal(value.Interface())
	}
}

// readMembers fills m out of object and keeps what m's type does not have.
func readMembers(m protoreflect.Message, object map[string]jsonText) error {
	known, nested, unknown := map[string]jsonText{}, map[string]jsonText{}, map[string]jsonText{}
	fields := m.Descriptor().Fields()
	for name, value := range object {
		field := fields.ByJSONName(name)
		if field == nil {
			// The proto's own names ("chat_id") are read too; the JSON name wins.
			if field = fields.ByTextName(name); field != nil && object[field.JSONName()] != nil {
				continue
			}
		}
		switch {
		case field == nil:
			unknown[name] = value
		case isOurs(field):
			nested[field.JSONName()] = value
		default:
			known[field.JSONName()] = value
		}
	}
	if len(known) > 0 {
		b, err := json.Marshal(known)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		if err := protojson.Unmarshal(b, m.Interface()); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	for name, value := range nested {
		if err := readNested(m, fields.ByJSONName(name), value); err != nil {
			return err
		}
	}
	return keepUnknown(m, unknown)
}

func readNested(m protoreflect.Message, field protoreflect.FieldDescriptor, value jsonText) error {
	if bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
		return nil
	}
	object, err := parseObject(value)
	if err != nil {
		return fmt.Errorf("%s: %w", field.JSONName(), err)
	}
	if err := readMembers(m.Mutable(field).Message(), object); err != nil {
		return fmt.Errorf("%s: %w", field.JSONName(), err)
	}
	return nil
}

// isOurs tells messages of this package from the well-known types, whose JSON is special.
func isOurs(field protoreflect.FieldDescriptor) bool {
	return field.Kind() == protoreflect.MessageKind && field.Message().ParentFile() == File_task_envelope_proto
}

func keepUnknown(m protoreflect.Message, unknown map[string]jsonText) error {
	if len(unknown) == 0 {
		return nil
	}
	members := make([]member, 0, len(unknown))
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		value, err := compactText(unknown[name])
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrMalformed, name, err)
		}
		members = append(members, member{name, value})
	}
	b := protowire.AppendTag(nil, unknownNumber, protowire.BytesType)
	m.SetUnknown(protowire.AppendBytes(b, appendObject(nil, members)))
	return nil
}

func unknownMembers(m protoreflect.Message) (map[string]jsonText, error) {
	for b := []byte(m.GetUnknown()); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, fmt.Errorf("%w: unknown fields: %w", ErrMalformed, protowire.ParseError(n))
		}
		if number == unknownNumber && kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(b[n:])
			if size < 0 {
				return nil, fmt.Errorf("%w: unknown fields: %w", ErrMalformed, protowire.ParseError(size))
			}
			return parseObject(value)
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return nil, fmt.Errorf("%w: unknown fields: %w", ErrMalformed, protowire.ParseError(size))
		}
		b = b[n+size:]
	}
	return nil, nil
}

func parseObject(b []byte) (map[string]jsonText, error) {
	var object map[string]jsonText
	if err := json.Unmarshal(b, &object); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if object == nil {
		return nil, fmt.Errorf("%w: null is no object", ErrMalformed)
	}
	return object, nil
}

func appendObject(b []byte, members []member) []byte {
	b = append(b, '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		name, _ := stringText(m.name) // names come out of parsed JSON or the .proto: they are UTF-8
		b = append(append(append(b, name...), ':'), m.value...)
	}
	return append(b, '}')
}

func compactText(b []byte) (jsonText, error) {
	var out bytes.Buffer
	err := json.Compact(&out, b)
	return out.Bytes(), err
}

// stringText renders s as JSON without the escapes for HTML.
func stringText(s string) (jsonText, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return nil, err
	}
	return jsonText(strings.TrimSuffix(out.String(), "\n")), nil
}
