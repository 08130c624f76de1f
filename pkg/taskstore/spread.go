package taskstore

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// On MySQL a batch is one plain UPDATE or INSERT … SELECT over the primary key, in which a column's value is a function of the
// row's id: one placeholder when it is the same for all rows, else a balanced tree of IFs over the sorted ids, whose leaves
// are runs of equal values. A join with a derived table of the rows makes the server write a temporary table, on disk when a
// column is a long text: measured on MariaDB 10.11, that was 90 of the 200 µs of its CPU that a task cost at drain.

// column is one column of a spread statement: @each(name) in its text.
type column[R any] struct {
	name   string
	same   func(a, b *R) bool // both rows have the same value
	branch func(r *R) any     // a value, keep or fromNow
}

// keep is the leaf of a row whose column stays as it is.
type keep struct{}

// fromNow is the leaf of a time so many microseconds after the statement's.
type fromNow int64

// columnOf makes a column of a function that answers a row's value, and false to keep the one it has.
func columnOf[R any, T comparable](name string, value func(r *R) (v T, write bool)) column[R] {
	return column[R]{
		name: name,
		same: func(a, b *R) bool {
			va, wa := value(a)
			vb, wb := value(b)
			return wa == wb && va == vb
		},
		branch: func(r *R) any {
			if v, write := value(r); write {
				return any(v)
			}
			return keep{}
		},
	}
}

// textOf makes a column of optional texts; write tells whether the row's is written at all.
func textOf[R any](name string, value func(r *R) (v *string, write bool)) column[R] {
	return column[R]{
		name: name,
		same: func(a, b *R) bool {
			va, wa := value(a)
			vb, wb := value(b)
			return wa == wb && (va == vb || (va != nil && vb != nil && *va == *vb))
		},
		branch: func(r *R) any {
			v, write := value(r)
			switch {
			case !write:
				return keep{}
			case v == nil:
				return nil
			}
			return *v
		},
	}
}

// batchUpdate renders a statement over rows: (@list) is their ids, @each(name) a column, @at its time, ? takes the next of args.
// Lines of an assignment whose column stays as it is in all rows are left out.
type batchUpdate[R any] struct {
	text    strings.Builder
	args    []any
	rows    []R // in id order
	id      func(r *R) string
	columns []column[R]
	fromNow string    // what fromNow is in SQL
	at      time.Time // the statement's time, when it is given; zero: the server's
}

// batchUpdateRows renders the statement of that name; the rows are sorted in place.
func batchUpdateRows[R any](s *Store, name string, at time.Time, rows []R, id func(r *R) string, columns []column[R], args ...any) (query string, all []any) {
	slices.SortFunc(rows, func(a, b R) int { return cmp.Compare(id(&a), id(&b)) })
	w := &batchUpdate[R]{rows: rows, id: id, columns: columns, fromNow: s.queries.Get("FromNow"), at: at}
	text := s.queries.Get(name)
	w.text.Grow(len(text) + 40*len(rows))
	for line := range strings.Lines(text) {
		w.line(line, &args)
	}
	return w.text.String(), w.args
}

// line renders one line, or leaves it out.
func (w *batchUpdate[R]) line(line string, args *[]any) {
	if target, _, ok := strings.Cut(line, " = @each("); ok && !strings.Contains(target, "AND ") && w.stays(line) {
		return
	}
	for {
		at := strings.IndexAny(line, "?@(")
		if at < 0 {
			w.text.WriteString(line)
			return
		}
		w.text.WriteString(line[:at])
		line = line[at:]
		switch {
		case line[0] == '?':
			w.put((*args)[0])
			*args, line = (*args)[1:], line[1:]
		case strings.HasPrefix(line, "(@list)"):
			w.list()
			line = line[len("(@list)"):]
		case strings.HasPrefix(line, "@at"):
			w.instant(0)
			line = line[len("@at"):]
		case strings.HasPrefix(line, "@each("):
			name, rest, _ := strings.Cut(line[len("@each("):], ")")
			w.caseTree(w.column(name), w.runs(w.column(name)))
			line = rest
		default:
			w.text.WriteByte(line[0])
			line = line[1:]
		}
	}
}

// stays reports whether the assignment of a line changes nothing in any row.
func (w *batchUpdate[R]) stays(line string) bool {
	_, rest, _ := strings.Cut(line, "@each(")
	name, _, _ := strings.Cut(rest, ")")
	c := w.column(name)
	if c.branch(&w.rows[0]) != any(keep{}) {
		return false
	}
	return len(w.runs(c)) == 1
}

// column finds a column; an unknown name is a programmer's mistake.
func (w *batchUpdate[R]) column(name string) column[R] {
	for _, c := range w.columns {
		if c.name == name {
			return c
		}
	}
	panic("taskstore: no column " + name)
}

// put writes a placeholder.
func (w *batchUpdate[R]) put(arg any) {
	w.text.WriteByte('?')
	w.args = append(w.args, arg)
}

// list writes the ids.
func (w *batchUpdate[R]) list() {
	for i := range w.rows {
		if i == 0 {
			w.text.WriteByte('(')
		} else {
			w.text.WriteByte(',')
		}
		w.put(w.id(&w.rows[i]))
	}
	w.text.WriteByte(')')
}

// runs are the first rows of equal values.
func (w *batchUpdate[R]) runs(c column[R]) []int {
	starts := []int{0}
	for i := 1; i < len(w.rows); i++ {
		if !c.same(&w.rows[i-1], &w.rows[i]) {
			starts = append(starts, i)
		}
	}
	return starts
}

// caseTree writes the value of a column for the rows of these runs.
func (w *batchUpdate[R]) caseTree(c column[R], starts []int) {
	if len(starts) == 1 {
		w.branch(c, &w.rows[starts[0]])
		return
	}
	middle := len(starts) / 2
	w.text.WriteString("IF(t.id < ")
	w.put(w.id(&w.rows[starts[middle]]))
	w.text.WriteByte(',')
	w.caseTree(c, starts[:middle])
	w.text.WriteByte(',')
	w.caseTree(c, starts[middle:])
	w.text.WriteByte(')')
}

// branch writes one value.
func (w *batchUpdate[R]) branch(c column[R], r *R) {
	switch v := c.branch(r).(type) {
	case keep:
		w.text.WriteString("t." + c.name)
	case fromNow:
		w.instant(v)
	default:
		w.put(v)
	}
}

// instant writes a time so many microseconds after the statement's.
func (w *batchUpdate[R]) instant(d fromNow) {
	if !w.at.IsZero() {
		w.put(w.at.Add(time.Duration(d) * time.Microsecond))
		return
	}
	before, after, _ := strings.Cut(w.fromNow, "?")
	w.text.WriteString(before)
	w.put(int64(d))
	w.text.WriteString(after)
}

// changeColumns are the columns of Update on MySQL.
var changeColumns = []column[changeRow]{
	columnOf("from_status", func(r *changeRow) (string, bool) { return r.From, true }),
	columnOf("from_fence", func(r *changeRow) (int64, bool) { return r.Fence, true }),
	columnOf("from_owner", func(r *changeRow) (string, bool) { return r.Owner, true }),
	columnOf("status", func(r *changeRow) (string, bool) { return r.To, r.To != r.From }),
	columnOf("fence", func(r *changeRow) (int64, bool) { return r.NewFence, r.NewFence != r.Fence }),
	columnOf("attempt_count", func(r *changeRow) (int, bool) { return r.Attempts, r.Attempts != r.before.AttemptCount }),
	columnOf("crash_count", func(r *changeRow) (int, bool) { return r.Crashes, r.Crashes != r.before.CrashCount }),
	columnOf("throttle_count", func(r *changeRow) (int, bool) { return r.Throttles, r.Throttles != r.before.ThrottleCount }),
	timeOf("next_retry_at", nil, func(r *changeRow) *int64 { return r.Retry }),
	timeOf("lease_expires_at", never, func(r *changeRow) *int64 { return r.Lease }),
	timeOf("wake_at", never, func(r *changeRow) *int64 { return r.Wake }),
	timeOf("promised_at", never, func(r *changeRow) *int64 { return r.Enqueue }),
	columnOf("lease_owner", func(r *changeRow) (string, bool) { return r.LeaseOwner, r.LeaseOwner != r.Owner }),
	columnOf("promise_count", func(r *changeRow) (int, bool) { return r.Enqueues, r.Enqueues != r.before.EnqueueCount }),
	columnOf("dlq_state", func(r *changeRow) (string, bool) { return r.DLQ, r.DLQ != string(r.before.DLQ) }),
	columnOf("delivery", func(r *changeRow) (string, bool) { return r.Delivery, r.Delivery != r.before.Delivery }),
	textOf("attempt_traceparent", func(r *changeRow) (*string, bool) { return r.Trace, r.Trace != nil }),
	columnOf("stage", func(r *changeRow) (string, bool) { return r.Stage, r.Stage != string(r.before.Progress.Stage) }),
	columnOf("progress", func(r *changeRow) (int, bool) { return r.Percent, r.Percent != r.before.Progress.Percent }),
	columnOf("processed_segments", func(r *changeRow) (int, bool) { return r.Processed, r.Processed != r.before.Progress.Processed }),
	columnOf("total_segments", func(r *changeRow) (int, bool) { return r.Total, r.Total != r.before.Progress.Total }),
	textOf("last_error", func(r *changeRow) (*string, bool) { return r.LastError, r.Texts == 1 }),
	textOf("error_message", func(r *changeRow) (*string, bool) { return r.Message, r.Texts == 1 }),
	textOf("error_code", func(r *changeRow) (*string, bool) { return r.Code, r.Texts == 1 }),
	textOf("result", func(r *changeRow) (*string, bool) { return r.Result, r.Texts == 1 }),
}

// never is the date that stands for "none" in columns that are NOT NULL.
const never = "9999-12-31 00:00:00.000000"

// timeOf makes a column of delays as changeRow has them; none is what neverMicros is in this column.
func timeOf(name string, none any, delay func(r *changeRow) *int64) column[changeRow] {
	return column[changeRow]{
		name: name,
		same: func(a, b *changeRow) bool {
			da, db := delay(a), delay(b)
			return da == db || (da != nil && db != nil && *da == *db)
		},
		branch: func(r *changeRow) any {
			switch d := delay(r); {
			case d == nil:
				return keep{}
			case *d >= neverMicros:
				return none
			default:
				return fromNow(*d)
			}
		},
	}
}

// logColumns are the columns of Log on MySQL.
var logColumns = []column[logRow]{
	textOf("from_status", func(r *logRow) (*string, bool) { return r.From, true }),
	columnOf("reason", func(r *logRow) (string, bool) { return r.Reason, true }),
	columnOf("actor", func(r *logRow) (string, bool) { return r.Actor, true }),
	columnOf("message", func(r *logRow) (string, bool) { return r.Message, true }),
}
