//go:build !race

// The race detector drops pooled memory at random, so allocations mean nothing under it.

package proto

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// A delivery on Redis, as Millweir writes it, costs few allocations to write and to read: each task has one.
// Not parallel: it counts allocations.
func TestADeliveryCostsFewAllocations(t *testing.T) {
	e := &TaskEnvelope{
		SchemaVersion: 1, TaskId: "task", Type: "document", Source: "millweir", UserId: "anna", DocumentId: "doc", FilePath: "a.pdf",
		Context: &TaskContext{RequestId: "r", Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", User: "anna"},
	}
	fields, err := EncodeFields(e)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{}
	for _, f := range fields {
		named[f.Name] = f.Value
	}
	written := testing.AllocsPerRun(100, func() { _, _ = EncodeFields(e) })
	read := testing.AllocsPerRun(100, func() { _, _ = DecodeFields(named) })
	found := testing.AllocsPerRun(100, func() {
		var g Glance
		for _, f := range fields {
			if !g.Field(f.Name, f.Value) {
				t.Error(f.Name)
			}
		}
		if id, ok := g.Task(); id != "task" || !ok {
			t.Error("not found")
		}
	})
	record, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = Decode(record) }); n > 4 {
		t.Errorf("%.0f allocations to read a record", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = Encode(e) }); n > 8 {
		t.Errorf("%.0f allocations to write a record", n)
	}
	t.Logf("%.0f allocations to write, %.0f to read, %.0f to find the task", written, read, found)
	if written > 6 || read > 4 || found > 0 {
		t.Fatalf("%.0f allocations to write, %.0f to read, %.0f to find the task", written, read, found)
	}
}

// BenchmarkDecode reads a record of Kafka as this release writes it.
func BenchmarkDecode(b *testing.B) {
	record := []byte(`{"schemaVersion":1,"taskId":"0190a6e0-0000-7000-8000-000000000001","type":"document","source":"millweir","channel":"http",` +
		`"userId":"anna","documentId":"0190a6e0-0000-7000-8000-000000000002","filePath":"0190a6e0-0000-7000-8000-000000000003",` +
		`"payload":{"fileName":"a.txt","mediaType":"text/plain"},"context":{"requestId":"r","user":"anna"},"status":"QUEUED",` +
		`"retry":{"max":10},"createdAt":"2026-11-26T13:25:33.446438Z","updatedAt":"2026-11-26T13:25:33.446438Z"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(record); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncode writes a record of Kafka, and a copy for RabbitMQ.
func BenchmarkEncode(b *testing.B) {
	at := timestamppb.New(time.Date(2026, 11, 26, 13, 25, 33, 446438000, time.UTC))
	e := &TaskEnvelope{
		SchemaVersion: 1, TaskId: "0190a6e0-0000-7000-8000-000000000001", Type: "document", Source: "millweir", Channel: "http",
		UserId: "anna", DocumentId: "0190a6e0-0000-7000-8000-000000000002", FilePath: "0190a6e0-0000-7000-8000-000000000003",
		Payload: Payload([]byte(`{"fileName":"a.txt","mediaType":"text/plain"}`)),
		Context: &TaskContext{RequestId: "r", User: "anna"}, Status: "QUEUED", Retry: &TaskRetry{Max: 10}, CreatedAt: at, UpdatedAt: at,
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Encode(e); err != nil {
			b.Fatal(err)
		}
	}
}
