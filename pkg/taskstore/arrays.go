package taskstore

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// On Postgres rows of a batch travel as one array a column, of the columns of which some row says something. As a JSON array their
// parsing was a quarter of what a bulk of new tasks cost the server.

// arrays are rows by column, as the table c.
type arrays struct {
	names, types []string
	columns      []any
}

// add adds a column of n values, each nil or of one type; a column of which no row says anything is left out.
func (a *arrays) add(name string, n int, value func(i int) any) {
	values := make([]any, n)
	var first any
	for i := range values {
		if values[i] = value(i); first == nil {
			first = values[i]
		}
	}
	switch first.(type) {
	case nil:
		return
	case string:
		a.column(name, "text", pointers[string](values))
	case int64:
		a.column(name, "bigint", pointers[int64](values))
	case time.Time:
		a.column(name, "timestamptz", pointers[time.Time](values))
	}
}

func (a *arrays) column(name, typ string, values any) {
	a.names, a.types, a.columns = append(a.names, name), append(a.types, typ), append(a.columns, values)
}

// ids adds the ids of n rows.
func (a *arrays) ids(n int, id func(i int) string) {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = id(i)
	}
	a.column("id", "uuid", ids)
}

// pointers are values with NULL for nil.
func pointers[T any](values []any) []*T {
	out := make([]*T, len(values))
	for i, v := range values {
		if v != nil {
			one := as[T](v)
			out[i] = &one
		}
	}
	return out
}

// has reports whether some row says something of a column.
func (a *arrays) has(name string) bool { return slices.Contains(a.names, name) }

// rows is the table c.
func (a *arrays) rows() sqldb.Part {
	casts := make([]string, len(a.types))
	for i, typ := range a.types {
		casts[i] = "CAST(? AS " + typ + "[])"
	}
	return sqldb.Part{Text: "unnest(" + strings.Join(casts, ", ") + ") AS c(" + strings.Join(a.names, ", ") + ")", Args: a.columns}
}

// list is the columns but the id, each after a comma.
func (a *arrays) list(prefix string) sqldb.Part {
	var b strings.Builder
	for _, name := range a.names {
		if name != "id" {
			b.WriteString(", " + prefix + name)
		}
	}
	return sqldb.Part{Text: b.String()}
}

// element is what a pointer of a column says, as an array has it: times of changes are microseconds from now.
func element(p any) any {
	switch p := p.(type) {
	case *string:
		return *p
	case *json.RawMessage:
		return string(*p)
	case *int:
		return int64(*p)
	case *int64:
		return *p
	case *taskstate.Delay:
		if p.Kind == taskstate.DelayIn {
			return boundedMicros(p.In)
		}
		return neverMicros
	}
	panic("taskstore: a column without an element")
}

// insertArrays is the INSERT of new tasks at an instant.
func (s *Store) insertArrays(batch []*task, now time.Time) sqldb.Part {
	bodies, states := &arrays{}, &arrays{}
	for _, c := range s.said(batch) {
		bodies.add(c.name, len(batch), func(i int) any {
			if c.argument(c.field(batch[i])) == nil {
				return nil
			}
			return element(c.field(batch[i]))
		})
	}
	states.ids(len(batch), func(i int) string { return batch[i].ID })
	return s.queries.Bind("InsertState", sqldb.Parts{
		"columns": bodies.list(""), "values": bodies.list("c."), "bodies": bodies.rows(), "states": states.rows(),
	}, now, now, now, now)
}

// logArrays is the INSERT of a call and its rows.
func (s *Store) logArrays(log []logRow, args []any) sqldb.Part {
	own := make([][len(ownColumns)]any, len(log))
	for i := range log {
		own[i] = log[i].own(&log[0])
	}
	rows := &arrays{}
	rows.ids(len(log), func(i int) string { return log[i].id })
	for n, name := range ownColumns {
		rows.add(name, len(log), func(i int) any { return own[i][n] })
	}
	return s.queries.Bind("Log", sqldb.Parts{"columns": rows.list(""), "values": rows.list("c."), "rows": rows.rows()}, args...)
}

// updateArrays is the UPDATE of the states of changes; of rows that are not locked it finds those only that say no later time.
func (s *Store) updateArrays(part []changed, epoch int64, unlocked bool) sqldb.Part {
	rows := &arrays{}
	rows.ids(len(part), func(i int) string { return part[i].by.TaskID })
	var set, guards strings.Builder
	for _, c := range s.columns {
		if c.body() {
			continue
		}
		if c.role&guard != 0 && (c.kind != owner || unlocked) {
			rows.add(guarded+c.name, len(part), func(i int) any { return element(part[i].from(c)) })
			guards.WriteString(" AND t." + c.name + " = c." + guarded + c.name)
		}
		if c.change == nil {
			continue
		}
		rows.add(c.name, len(part), func(i int) any {
			if c.stays(part[i].before, part[i].by) {
				return nil
			}
			return element(part[i].to(c))
		})
		if rows.has(c.name) {
			set.WriteString(c.name + " = " + s.queries.Get("Set_"+c.name) + next)
		}
	}
	if unlocked {
		guards.WriteString(" " + s.queries.Get("Earlier"))
	}
	return s.queries.Bind("Update", sqldb.Parts{"assignments": {Text: set.String()}, "guards": {Text: guards.String()}, "rows": rows.rows()}, epoch)
}
