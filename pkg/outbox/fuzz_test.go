package outbox

import (
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
)

// FuzzListQuery: whatever a cursor and the filters say, a list's statement has as many marks as arguments, and one order.
func FuzzListQuery(f *testing.F) {
	f.Add("DEAD", "", "REFUSED", "t", int64(0), int64(5), true)
	f.Add("", "task?", "", "", int64(-1), int64(-9), true)
	f.Add("NEW", "", "none", "", int64(1<<62), int64(1), false)
	s := NewStore(fakeDialect{})
	f.Fuzz(func(t *testing.T, state, task, cause, topic string, at, seq int64, after bool) {
		q := Query{State: Status(state), Task: task, Cause: Cause(cause), Topic: topic, Limit: 10}
		if after {
			q.After = &Cursor{WakeAt: time.UnixMicro(at).UTC(), Seq: seq}
		}
		text, args := s.listQuery("ListColumns", q)
		marks, orders := 0, 0
		for i := range len(text) {
			if text[i] == '?' {
				marks++
			}
		}
		for i := range len(text) - 8 {
			if text[i:i+8] == "ORDER BY" {
				orders++
			}
		}
		if marks != len(args) || orders != 1 {
			t.Fatalf("%d marks, %d arguments, %d orders in %s", marks, len(args), orders, text)
		}
	})
}

// fakeDialect only names a dialect.
type fakeDialect struct{ sqldb.DB }

func (fakeDialect) Dialect() string { return string(sqldb.MySQL) }
