package proto

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
)

// FuzzDecode: what decodes also encodes, to bytes that are stable from then on, on both wires.
func FuzzDecode(f *testing.F) {
	for _, b := range goldens(f) {
		f.Add(b)
	}
	f.Add([]byte(`{"taskId":"t","chat_id":"a","context":null,"payload":1e5}`))
	f.Add([]byte(`{"task_id":"t","schemaVersion":"3","retry":{},"x":{"y":"\u2028<>&"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		first, err := Encode(e)
		if errors.Is(err, ErrTooLarge) { // 1e5 is longer when written out
			return
		}
		if err != nil || !json.Valid(first) {
			t.Fatalf("encode %v: %v\n%s", e, err, first)
		}
		again, err := Decode(first)
		if err != nil {
			t.Fatalf("decode %s: %v", first, err)
		}
		if second, err := Encode(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%v\n%s\n%s", err, first, second)
		}
		fields, err := EncodeFields(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := EncodeFields(decodeFields(t, fields))
		if err != nil || !equalFields(fields, back) {
			t.Fatalf("%v\n%q\n%q", err, fields, back)
		}
	})
}

// FuzzDecodeFields: any three fields decode or are refused; what decodes encodes to the same fields for ever.
func FuzzDecodeFields(f *testing.F) {
	f.Add("taskId", "t", "payload", `{"a":1}`, "context", `{"requestId":"r","x":1}`)
	f.Add("taskId", "t", "chat_id", "a", "chatId", "b")
	f.Add("task_id", "t", "unknown", "[1, 2]", "other", `{"open"`)
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, n3, v3 string) {
		e, err := DecodeFields(map[string]string{n1: v1, n2: v2, n3: v3})
		if err != nil {
			return
		}
		fields, err := EncodeFields(e)
		if errors.Is(err, ErrTooLarge) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		back, err := EncodeFields(decodeFields(t, fields))
		if err != nil || !equalFields(fields, back) {
			t.Fatalf("%v\n%q\n%q", err, fields, back)
		}
	})
}

// FuzzQuick: a field that is read without the codec means what the codec says.
func FuzzQuick(f *testing.F) {
	f.Add("context", `{"requestId":"r","traceparent":"00-1","user":"u"}`)
	f.Add("retry", `{"count":1,"max":3,"nextAttemptAt":"2026-11-22T01:02:03.000004Z"}`)
	f.Add("retry", `{}`)
	f.Add("retry", `{"count":1,"count":2}`)
	f.Add("createdAt", "2026-11-22T01:02:03Z")
	f.Add("updatedAt", "0000-11-22T01:02:03Z")
	f.Add("schemaVersion", "12")
	f.Add("schemaVersion", "0")
	f.Add("chatId", "c")
	f.Add("payload", `{"title":"t","n":12,"ok":true}`)
	f.Add("payload", `{"a":1,"a":2}`)
	f.Add("payload", `{"":"","x":-1}`)
	f.Fuzz(func(t *testing.T, name, value string) {
		e := &TaskEnvelope{}
		if value == "" || !utf8.ValidString(value) || !quick(e, name, value) {
			return
		}
		want := &TaskEnvelope{}
		if err := slow(want, nil, map[string]string{name: value}); err != nil {
			t.Fatalf("%s=%q: quick read it, the codec says %v", name, value, err)
		}
		e.SchemaVersion, want.SchemaVersion = max(e.SchemaVersion, 1), max(want.SchemaVersion, 1)
		if !protobuf.Equal(e, want) {
			t.Fatalf("%s=%q:\n%v\n%v", name, value, e, want)
		}
	})
}

// FuzzQuickValue: a field that is written without the codec has the codec's bytes.
func FuzzQuickValue(f *testing.F) {
	for _, b := range goldens(f) {
		f.Add(b)
	}
	f.Add([]byte(`{"taskId":"t","payload":{"b":"x","a":-12,"c":true,"d":"\u2028"},"context":{"user":"<&>"},"retry":{"count":-1}}`))
	f.Add([]byte(`{"taskId":"t","payload":{"a":-0,"b":1e8,"c":0.5},"createdAt":"2026-01-02T03:04:05.120Z","retry":{}}`))
	f.Add([]byte(`{"taskId":"t","payload":{},"context":{"x":1},"retry":{"nextAttemptAt":"0001-01-01T00:00:00Z","max":2147483647}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		err = eachMember(e.ProtoReflect(), func(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
			want, err := fieldValue(field, value)
			if got, ok := quickValue(e, field.JSONName()); ok && (err != nil || got != want) {
				t.Fatalf("%s: %q, the codec says %q, %v", field.JSONName(), got, want, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzPayload: a payload is what the mapping to JSON makes of its text.
func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"title":"t","n":12}`))
	f.Add([]byte(`[1,{"a":null}]`))
	f.Add([]byte("{\"a\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		want := &structpb.Value{}
		if want.UnmarshalJSON(text) != nil {
			want = nil
		}
		if got := Payload(text); (got == nil) != (want == nil) || !protobuf.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}
