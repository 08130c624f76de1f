package proto

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
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
