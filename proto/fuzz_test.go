package proto

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	protobuf "google.golang.org/protobuf/proto"
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

// FuzzQuick: a context that is read without the codec means what the codec says.
func FuzzQuick(f *testing.F) {
	f.Add(`{"requestId":"r","traceparent":"00-1","user":"u"}`)
	f.Add(`{"user":"u"}`)
	f.Add(`{"user":"u","requestId":"r"}`)
	f.Add(`{"user":"u",}`)
	f.Add(`{,"user":"u"}`)
	f.Add(`{"user":"a","user":"b"}`)
	f.Add(`{}`)
	f.Add(`}`)
	f.Fuzz(func(t *testing.T, value string) {
		e := &TaskEnvelope{SchemaVersion: 1, Context: quickContext(value)}
		if e.Context == nil || !utf8.ValidString(value) {
			return
		}
		want := &TaskEnvelope{SchemaVersion: 1}
		if err := slow(want, nil, map[string]string{contextName: value}); err != nil {
			t.Fatalf("%q: quick read it, the codec says %v", value, err)
		}
		if !protobuf.Equal(e, want) {
			t.Fatalf("%q:\n%v\n%v", value, e, want)
		}
	})
}

// FuzzQuickEnvelope: an envelope that is read without the codec means what the codec says.
func FuzzQuickEnvelope(f *testing.F) {
	for _, b := range goldens(f) {
		f.Add(b)
	}
	for _, text := range []string{
		`{"schemaVersion":1,"taskId":"t","type":"document","payload":{"title":"ä","n":[1,2.5]},"context":{"user":"u"},"retry":{"count":1,"max":10}}`,
		`{"schemaVersion":1,"taskId":"t","payload":1e400}`,
		`{"schemaVersion":1,"taskId":"t","payload":null,"retry":{}}`,
		`{"schemaVersion":1,"taskId":"t","payload":"]","retry":{"nextAttemptAt":"2026-11-26T13:25:33.446438Z"}}`,
		`{"schemaVersion":1,"taskId":"t","createdAt":"0000-01-01T00:00:00Z","updatedAt":"9999-12-31T23:59:59.999999999Z"}`,
		`{"schemaVersion":1,"taskId":"t","createdAt":"2026-02-30T24:00:00Z"}`,
		`{"schemaVersion":1,"taskId":"t","createdAt":"2026-11-26T13:25:33,5Z"}`,
		`{"schemaVersion":1,"taskId":"t","retry":{"max":2147483648}}`,
		`{"schemaVersion":1,"taskId":"t","retry":{"max":01}}`,
		`{"schemaVersion":1,"taskId":"t","taskId":"u"}`,
		`{"schemaVersion":1,"taskId":"t","payload":{"a":1,"a":2}}`,
		`{"schemaVersion":1,"taskId":"t","payload":[}}`,
		`{"schemaVersion":1,"taskId":"t","type":null}`,
		`{"schemaVersion":1,"taskId":""}`,
		`{"schemaVersion":1,"taskId":"t"} `,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := quickEnvelope(string(b))
		if !ok || !utf8.Valid(b) || len(b) > MaxEnvelope {
			return
		}
		object, err := parseObject(b)
		if err != nil {
			t.Fatalf("%s: quick read it, the codec says %v", b, err)
		}
		want, err := decodeObject(object)
		if err != nil || !protobuf.Equal(e, want) {
			t.Fatalf("%s:\n%v\n%v, %v", b, e, want, err)
		}
	})
}

// FuzzGlance: an entry whose task is found without reading it is read without an error, and names that task.
func FuzzGlance(f *testing.F) {
	f.Add("taskId", "t", "schemaVersion", "1", "context", `{"requestId":"r"}`)
	f.Add("taskId", "t", "schemaVersion", "2", "context", `{"x":1}`)
	f.Add("taskId", "t", "taskId", "u", "type", "a")
	f.Add("taskId", "", "userId", "\xff", "payload", "{")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, n3, v3 string) {
		named := map[string]string{n1: v1, n2: v2, n3: v3}
		var g Glance
		all := g.Field(n1, v1) && g.Field(n2, v2) && g.Field(n3, v3)
		id, ok := g.Task()
		if !all || !ok {
			return
		}
		if e, err := DecodeFields(named); err != nil || e.GetTaskId() != id {
			t.Fatalf("%q: found %q, read %v, %v", named, id, e, err)
		}
	})
}

// FuzzQuickValue: a context that is written without the codec has the codec's bytes.
func FuzzQuickValue(f *testing.F) {
	for _, b := range goldens(f) {
		f.Add(b)
	}
	f.Add([]byte(`{"taskId":"t","context":{"user":"<&>"}}`))
	f.Add([]byte(`{"taskId":"t","context":{"user":"\u2028","requestId":"\\"}}`))
	f.Add([]byte(`{"taskId":"t","context":{"x":1}}`))
	f.Add([]byte(`{"taskId":"t","context":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil || e.Context == nil {
			return
		}
		got, ok := quickContextText(e.Context)
		field := e.ProtoReflect().Descriptor().Fields().ByJSONName(contextName)
		want, err := appendValue(nil, field, e.ProtoReflect().Get(field))
		if ok && (err != nil || got != string(want)) {
			t.Fatalf("%q, the codec says %q, %v", got, want, err)
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
