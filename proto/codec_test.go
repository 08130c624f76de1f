package proto

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// goldens are the envelopes of every released version, by file name; they are never edited after a release.
func goldens(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/v*/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("golden files: %d, %v", len(files), err)
	}
	golden := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		golden[f] = bytes.TrimSpace(b)
	}
	return golden
}

func TestGoldenFilesDecodeAndEncodeToTheSameBytes(t *testing.T) {
	t.Parallel()
	for name, want := range goldens(t) {
		e, err := Decode(want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := Encode(e)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, want)
		}
	}
}

func TestGoldenMembersMeanWhatTheySay(t *testing.T) {
	t.Parallel()
	e, err := Decode(goldens(t)["testdata/v1/full.json"])
	if err != nil {
		t.Fatal(err)
	}
	want := &TaskEnvelope{
		SchemaVersion: 1, TaskId: "01890a5d-ac96-774b-bcce-b302099a8057", Type: "document", WorkflowId: "ingest",
		Source: "ingest-api", Channel: "http", ChatId: "chat-7", UserId: "local",
		DocumentId: "01890a5d-ac96-774b-bcce-b302099a8058", FilePath: "01890a5d-ac96-774b-bcce-b302099a8059",
		Payload: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"knowledgeBase": structpb.NewStringValue("default"),
			"title":         structpb.NewStringValue(`报告 <1> & "quotes"`),
			"pages":         structpb.NewNumberValue(12),
		}}),
		Context: &TaskContext{
			RequestId: "req-1", Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", User: "local",
		},
		IdempotencyKey: "http:ingest:chat-7:1750000000000", Status: "QUEUED",
		Retry:     &TaskRetry{Count: 1, Max: 10, NextAttemptAt: &timestamppb.Timestamp{Seconds: 1750000000, Nanos: 1000}},
		CreatedAt: &timestamppb.Timestamp{Seconds: 1750000000},
		UpdatedAt: &timestamppb.Timestamp{Seconds: 1750000000, Nanos: 123456000},
	}
	if !protobuf.Equal(e, want) {
		t.Errorf("got  %v\nwant %v", e, want)
	}
}

func TestFieldsCarryTheSameEnvelope(t *testing.T) {
	t.Parallel()
	for name, b := range goldens(t) {
		e, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := EncodeFields(e)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, want := range []string{"taskId", "userId", "documentId", "filePath"} {
			if fields[i].Name != want {
				t.Errorf("%s: field %d is %s, want %s", name, i, fields[i].Name, want)
			}
		}
		again, err := EncodeFields(decodeFields(t, fields))
		if err != nil || !equalFields(fields, again) {
			t.Errorf("%s: %v\n got %q\nwant %q", name, err, again, fields)
		}
		if strings.Contains(name, "unknown") {
			continue // a stream's fields are strings: an unknown number comes back as a string
		}
		if back := decodeFields(t, fields); !protobuf.Equal(back, e) {
			t.Errorf("%s:\n got %v\nwant %v", name, back, e)
		}
	}
}

func TestFieldsAreReadable(t *testing.T) {
	t.Parallel()
	e, err := Decode(goldens(t)["testdata/v1/full.json"])
	if err != nil {
		t.Fatal(err)
	}
	fields, err := EncodeFields(e)
	if err != nil {
		t.Fatal(err)
	}
	got := asMap(fields)
	for name, want := range map[string]string{
		"schemaVersion": "1", "taskId": "01890a5d-ac96-774b-bcce-b302099a8057", "userId": "local",
		"createdAt": "2025-06-15T15:06:40Z", "status": "QUEUED",
		"retry": `{"count":1,"max":10,"nextAttemptAt":"2025-06-15T15:06:40.000001Z"}`,
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}

func TestPayloadThatIsAStringStaysJSON(t *testing.T) {
	t.Parallel()
	e := &TaskEnvelope{TaskId: "t", Payload: structpb.NewStringValue(`{"not":"an object"}`)}
	fields, err := EncodeFields(e)
	if err != nil {
		t.Fatal(err)
	}
	if got := decodeFields(t, fields).Payload.GetStringValue(); got != `{"not":"an object"}` {
		t.Errorf("got %q", got)
	}
}

func TestChatIDIsReadUnderBothNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"taskId":"t","chat_id":"a"}`:              "a",
		`{"taskId":"t","chatId":"b"}`:               "b",
		`{"taskId":"t","chat_id":"a","chatId":"b"}`: "b",
	} {
		e, err := Decode([]byte(text))
		if err != nil || e.ChatId != want {
			t.Errorf("%s: got %q, %v; want %q", text, e.GetChatId(), err, want)
		}
	}
	if e, err := DecodeFields(map[string]string{"taskId": "t", "chat_id": "a"}); err != nil || e.ChatId != "a" {
		t.Errorf("fields: got %q, %v", e.GetChatId(), err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int32{
		`{"taskId":"t"}`:                                     1,
		`{"taskId":"t","schemaVersion":1}`:                   1,
		`{"taskId":"t","schemaVersion":7,"shape":{"new":1}}`: 7,
	} {
		e, err := Decode([]byte(text))
		if err != nil || e.SchemaVersion != want {
			t.Errorf("%s: got %d, %v; want %d", text, e.GetSchemaVersion(), err, want)
		}
	}
	e := &TaskEnvelope{TaskId: "t"}
	b, err := Encode(e)
	if err != nil || string(b) != `{"schemaVersion":1,"taskId":"t"}` || e.SchemaVersion != 0 {
		t.Errorf("got %s, %v, argument %v", b, err, e)
	}
}

func TestBadEnvelopesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"empty":             {``, ErrMalformed},
		"null":              {`null`, ErrMalformed},
		"array":             {`[]`, ErrMalformed},
		"no task":           {`{"userId":"u"}`, ErrNoTaskID},
		"old version":       {`{"taskId":"t","schemaVersion":-1}`, ErrSchemaVersion},
		"wrong kind":        {`{"taskId":7}`, ErrMalformed},
		"nested wrong kind": {`{"taskId":"t","context":"x"}`, ErrMalformed},
		"bad time":          {`{"taskId":"t","createdAt":"yesterday"}`, ErrMalformed},
		"not UTF-8":         {"{\"taskId\":\"\xff\"}", ErrMalformed},
		"deep":              {`{"taskId":"t","payload":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, ErrMalformed},
		"payload too large": {`{"taskId":"t","payload":"` + strings.Repeat("x", MaxPayload) + `"}`, ErrTooLarge},
		"whole too large":   {`{"taskId":"t","more":"` + strings.Repeat("x", MaxEnvelope) + `"}`, ErrTooLarge},
	} {
		if _, err := Decode([]byte(tc.text)); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestBadFieldsAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fields map[string]string
		want   error
	}{
		"none":              {nil, ErrNoTaskID},
		"empty task":        {map[string]string{"taskId": ""}, ErrNoTaskID},
		"payload not JSON":  {map[string]string{"taskId": "t", "payload": "{"}, ErrMalformed},
		"context not JSON":  {map[string]string{"taskId": "t", "context": "x"}, ErrMalformed},
		"version no number": {map[string]string{"taskId": "t", "schemaVersion": "one"}, ErrMalformed},
		"not UTF-8":         {map[string]string{"taskId": "t", "userId": "\xff"}, ErrMalformed},
		"name not UTF-8":    {map[string]string{"taskId": "t", "\xff": "x"}, ErrMalformed},
		"too large":         {map[string]string{"taskId": "t", "more": strings.Repeat("x", MaxEnvelope)}, ErrTooLarge},
	} {
		if _, err := DecodeFields(tc.fields); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestEncodeRefusesWhatNobodyCouldRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		e    *TaskEnvelope
		want error
	}{
		"nil":       {nil, ErrMalformed},
		"no task":   {&TaskEnvelope{}, ErrNoTaskID},
		"not UTF-8": {&TaskEnvelope{TaskId: "t", FilePath: "\xff"}, ErrMalformed},
		"NaN":       {&TaskEnvelope{TaskId: "t", Payload: structpb.NewNumberValue(math.NaN())}, ErrMalformed},
		"version":   {&TaskEnvelope{TaskId: "t", SchemaVersion: -2}, ErrSchemaVersion},
		"payload":   {&TaskEnvelope{TaskId: "t", Payload: structpb.NewStringValue(strings.Repeat("x", MaxPayload))}, ErrTooLarge},
		"whole":     {&TaskEnvelope{TaskId: "t", FilePath: strings.Repeat("x", MaxEnvelope)}, ErrTooLarge},
	} {
		if _, err := Encode(tc.e); !errors.Is(err, tc.want) {
			t.Errorf("%s: Encode got %v, want %v", name, err, tc.want)
		}
		if _, err := EncodeFields(tc.e); !errors.Is(err, tc.want) {
			t.Errorf("%s: EncodeFields got %v, want %v", name, err, tc.want)
		}
	}
}

func decodeFields(t testing.TB, fields []Field) *TaskEnvelope {
	t.Helper()
	e, err := DecodeFields(asMap(fields))
	if err != nil {
		t.Fatalf("decode %q: %v", fields, err)
	}
	return e
}

func asMap(fields []Field) map[string]string {
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		m[f.Name] = f.Value
	}
	return m
}

func equalFields(a, b []Field) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Times are written here, without protojson's machinery, and mean and look the same.
func TestTimesAreThoseOfProtojson(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(-1, 1), time.Unix(1, 100_000_000), time.Unix(1, 120_000), time.Unix(1, 123_456_789), time.Unix(1, 999_999_000),
		time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(2024, 2, 29, 12, 0, 0, 10, time.FixedZone("", 3600)),
	} {
		stamp := timestamppb.New(at)
		want, err := protojson.Marshal(stamp)
		if err != nil {
			t.Fatal(err)
		}
		if got := `"` + timeText(stamp) + `"`; got != string(want) {
			t.Errorf("%s: %s, protojson writes %s", at, got, want)
		}
	}
	for _, seconds := range []int64{-62135596801, 253402300800} { // a year before 1, and 10000
		e := &TaskEnvelope{TaskId: "t", CreatedAt: &timestamppb.Timestamp{Seconds: seconds}}
		if _, err := Encode(e); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d s: %v", seconds, err)
		}
	}
}
