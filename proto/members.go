package proto

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// unknownNumber is where a message in memory keeps the members that its type does not have:
// one length-delimited unknown field that holds a JSON object. The .proto reserves it.
const unknownNumber protowire.Number = 15000

// jsonText is one JSON value as text.
type jsonText = json.RawMessage

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

// appendMembers appends m as a JSON object: the set members by their numbers, then the unknown ones by name.
func appendMembers(b []byte, m protoreflect.Message) ([]byte, error) {
	b = append(b, '{')
	err := eachMember(m, func(field protoreflect.FieldDescriptor, value protoreflect.Value) (err error) {
		b, err = appendValue(appendName(b, field.JSONName()), field, value)
		return err
	})
	if err != nil {
		return nil, err
	}
	unknown, err := unknownMembers(m)
	if err != nil {
		return nil, err
	}
	return append(appendSorted(b, unknown), '}'), nil
}

// appendName appends the name of a member to an object that is not closed. Names come out of parsed JSON or the .proto: they are UTF-8.
func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b, _ = appendText(b, name)
	return append(b, ':')
}

// appendSorted appends members to an object that is not closed.
func appendSorted(b []byte, members map[string]jsonText) []byte {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		b = append(appendName(b, name), members[name]...)
	}
	return b
}

func appendValue(b []byte, field protoreflect.FieldDescriptor, value protoreflect.Value) ([]byte, error) {
	switch {
	case field.Kind() == protoreflect.StringKind:
		return appendText(b, value.String())
	case field.Kind() == protoreflect.Int32Kind:
		return strconv.AppendInt(b, value.Int(), 10), nil
	case isOurs(field):
		return appendMembers(b, value.Message())
	}
	if at, is := value.Message().Interface().(*timestamppb.Timestamp); is && at.CheckValid() == nil {
		return appendText(b, timeText(at))
	}
	// protojson varies its white space on purpose.
	text, err := protojson.Marshal(value.Message().Interface())
	if err != nil {
		return b, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if text, err = compactText(text); err == nil && field.JSONName() == payloadName {
		err = checkPayload(len(text))
	}
	return append(b, text...), err
}

// timeText is a time as protojson writes it, with 0, 3, 6 or 9 digits of a second.
func timeText(at *timestamppb.Timestamp) string {
	text := at.AsTime().Format("2006-01-02T15:04:05.000000000")
	for _, zeros := range []string{"000", "000", ".000"} {
		text = strings.TrimSuffix(text, zeros)
	}
	return text + "Z"
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
	for name, value := range unknown {
		compact, err := compactText(value)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrMalformed, name, err)
		}
		unknown[name] = compact
	}
	b := protowire.AppendTag(nil, unknownNumber, protowire.BytesType)
	m.SetUnknown(protowire.AppendBytes(b, append(appendSorted([]byte{'{'}, unknown), '}')))
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

func compactText(b []byte) (jsonText, error) {
	var out bytes.Buffer
	err := json.Compact(&out, b)
	return out.Bytes(), err
}

// stringText renders s as JSON without the escapes for HTML.
func stringText(s string) (jsonText, error) { return appendText(nil, s) }

// appendText appends s as stringText renders it.
func appendText(b []byte, s string) ([]byte, error) {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"'), nil
	}
	if !utf8.ValidString(s) {
		return b, fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return b, err
	}
	return append(b, strings.TrimSuffix(out.String(), "\n")...), nil
}
