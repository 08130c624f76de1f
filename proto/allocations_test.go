//go:build !race && !raced

// The race detector drops pooled memory at random, so allocations mean nothing under it: `make test` counts them without it
// (scripts/plain).

package proto

import "testing"

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
	t.Logf("%.0f allocations to write, %.0f to read, %.0f to find the task", written, read, found)
	if written > 6 || read > 4 || found > 0 {
		t.Fatalf("%.0f allocations to write, %.0f to read, %.0f to find the task", written, read, found)
	}
}
