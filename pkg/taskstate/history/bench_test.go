package history

import (
	"strconv"
	"testing"
)

// BenchmarkChecker judges one transition after the other, of tasks that end: its memory must not grow with them.
func BenchmarkChecker(b *testing.B) {
	log := whole()
	row := rowOf(log)
	c := New(*options())
	b.ReportAllocs()
	n := 0
	for task := 0; b.Loop(); {
		tr := log[n]
		tr.TaskID = strconv.Itoa(task)
		c.Add(tr)
		if n++; n == len(log) {
			row.ID, n = tr.TaskID, 0
			c.Row(row)
			task++
		}
	}
	if len(c.Tasks()) > 1 || c.Report().Violations() != 0 {
		b.Fatalf("%d tasks are kept, %d violations", len(c.Tasks()), c.Report().Violations())
	}
}
