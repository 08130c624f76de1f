package taskstore

import (
	"bytes"
	"embed"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// Rows of a batch travel as one JSON array on SQLite, and as one array a column on Postgres (package statement). On MySQL an
// UPDATE or INSERT … SELECT of a batch is a plain statement over the primary key, in which a column's value is a function of
// the row's id: one placeholder when it is the same for all rows, else a balanced tree of IFs over the sorted ids, whose leaves
// are runs of equal values. A join with a derived table of the rows makes the server write a temporary table, on disk when a
// column is a long text: measured on MariaDB 10.11, that was 90 of the 200 µs of its CPU that a task cost at drain.

//go:embed queries/*.sql
var queryFiles embed.FS

const (
	// In JSON a time of a change is microseconds from now, neverMicros for "none"; the assignments know the number.
	neverMicros = int64(9_000_000_000_000_000)
	// farMicros bounds what is added to now, so that no dialect leaves its calendar: 100 years.
	farMicros = int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	far       = time.Duration(farMicros) * time.Microsecond
	// maxBytes bounds the rows of one statement, well below what the servers take as one message.
	maxBytes = 4 << 20
	// never is the date that stands for "none" in columns that are NOT NULL.
	never = "9999-12-31 00:00:00.000000"
	// guarded begins the name of a guard's value in the rows of Update.
	guarded = "from_"
)

// assignments are what a column (§) becomes by a row c of JSON, by its kind; without a value in the row it stays.
var assignments = map[kind]string{
	text: "COALESCE(c.§, t.§)", word: "COALESCE(c.§, t.§)", number: "COALESCE(c.§, t.§)", owner: "COALESCE(c.§, t.§)", digits: "COALESCE(c.§, t.§)",
	nullable:        "CASE WHEN c.§ IS NULL THEN t.§ ELSE NULLIF(c.§, '') END",
	sharedOrNull:    "CASE WHEN c.§ IS NULL THEN t.§ ELSE NULLIF(c.§, '') END",
	instant:         "CASE WHEN c.§ IS NULL THEN t.§ WHEN c.§ >= 9000000000000000 THEN @never ELSE @in(c.§) END",
	nullableInstant: "CASE WHEN c.§ IS NULL THEN t.§ WHEN c.§ >= 9000000000000000 THEN NULL ELSE @in(c.§) END",
}

// afterMoment is a time of a change on Postgres, whose UPDATE knows its instant as moment.at.
const afterMoment = "(moment.at + CAST(c.§ AS bigint) * INTERVAL '1 microsecond')"

// jsonType is the type of a column in a row of JSON.
func (c column) jsonType() string {
	if c.kind == text || c.kind == digits || c.kind == word || c.kind == nullable || c.kind == sharedOrNull {
		return "text"
	}
	return "bigint"
}

// loadQueries reads the statements of a dialect and makes those parts of them that name the columns.
func loadQueries(dialect string, columns []column) sqldb.Queries {
	var all, locked, guards, names, values []string
	rows, assigned := [2][]string{{"id text"}, {"id text"}}, [2][]string{} // of the state, of the body
	for _, c := range columns {
		table, n := "t.", 0
		if c.body() {
			table, n = "b.", 1
		}
		read := table + c.name
		if c.name == wakeAt {
			read = "@include(WakesAt)"
		}
		if c.kind == owner {
			read = "@owner(" + read + ")"
		}
		all, locked = append(all, read), append(locked, table+c.name)
		if c.change != nil {
			rows[n] = append(rows[n], c.name+" "+c.jsonType())
			assigned[n] = append(assigned[n], c.name+" = "+strings.ReplaceAll(assignments[c.kind], "§", c.name))
		}
		if c.role&guard != 0 {
			rows[0] = append(rows[0], guarded+c.name+" "+c.jsonType())
			said := "c." + guarded + c.name
			if c.kind == owner {
				said = "COALESCE(" + said + ", t." + c.name + ")"
			}
			guards = append(guards, "t."+c.name+" = "+said)
		}
		if c.role&made != 0 {
			names = append(names, c.name)
			values = append(values, c.name+" "+c.jsonType())
		}
	}
	parts := sqldb.Queries{
		"Columns": strings.Join(all, ", "), "Locked": strings.Join(locked, ", "), "Changed": strings.Join(rows[0], ", "), "Assignments": strings.Join(assigned[0], ",\n  "),
		"Guards": strings.Join(guards, " AND "), "Said": strings.Join(rows[1], ", "), "Sayings": strings.Join(assigned[1], ",\n  "),
		"Made": strings.Join(names, ", "), "MadeTypes": strings.Join(values, ", "),
	}
	for _, c := range columns {
		if c.change != nil && !c.body() {
			parts["Set_"+c.name] = strings.ReplaceAll(strings.ReplaceAll(assignments[c.kind], "@in(c.§)", afterMoment), "§", c.name)
		}
	}
	return sqldb.MustLoad(queryFiles, "queries", dialect, parts)
}

// wakeAt is the column that a state says of a claim with its process's lease.
const wakeAt = "wake_at"

// changed is one change of one row.
type changed struct {
	before      *task
	by          *change
	held, holds int64 // the owner before, of rows that are not locked, and after, as the state has it
}

// from is where it has what a column said.
func (c *changed) from(col column) any {
	if col.kind == owner {
		return &c.held
	}
	return col.field(c.before)
}

// to is where it has what a column says now.
func (c *changed) to(col column) any {
	if col.kind == owner {
		return &c.holds
	}
	return col.change(c.by)
}

// size is how long the texts are that it writes.
func (c changed) size() int {
	n := 0
	if c.by.LastError != c.before.LastError {
		n = len(c.by.LastError)
	}
	if c.by.ErrorMessage != c.before.ErrorMessage {
		n += len(c.by.ErrorMessage)
	}
	if !bytes.Equal(c.by.Result, c.before.Result) {
		n += len(c.by.Result)
	}
	return n
}

// bySize cuts a batch so that no part is longer than maxBytes, except for a single row: one part unless rows are large.
func bySize[T any](batch []T, size func(T) int) [][]T {
	var parts [][]T
	from, sum := 0, 0
	for i, r := range batch {
		n := size(r)
		sum += n
		if i > from && sum > maxBytes {
			parts = append(parts, batch[from:i])
			from, sum = i, n
		}
	}
	return append(parts, batch[from:])
}

// updateState is the UPDATE of the states of changes, sorted by id, at an instant; zero: the server's now. Of rows that are not
// locked it finds those only that say no later time.
func (s *Store) updateState(part []changed, at time.Time, epoch int64, unlocked bool) sqldb.Part {
	if s.postgres() {
		return s.updateArrays(part, at, epoch, unlocked)
	}
	if !s.mysql() {
		parts := sqldb.Parts{"earlier": {}}
		if unlocked {
			parts["earlier"] = s.queries.Part("Earlier")
		}
		return s.queries.Bind("Update", parts, s.changedRows(part, false, unlocked), epoch)
	}
	ids := make([]string, len(part))
	for i, r := range part {
		ids[i] = r.by.TaskID
	}
	raw := s.rawIDs(ids)
	set := s.assignmentsByID(part, raw, false, at)
	guards := &byID{ids: raw}
	for _, c := range s.columns {
		if c.role&guard != 0 && (c.kind != owner || unlocked) {
			guards.SQL(" AND t." + c.name + " = ")
			guards.value(func(i int) any { return part[i].from(c) }, func(p any) { guards.SQL("?", c.argument(p)) })
		}
	}
	set.SQL("t.updated_at = ")
	s.instant(&set.Pieces, at, 0)
	if unlocked {
		guards.SQL(" AND t.updated_at < ")
		s.instant(&guards.Pieces, at, 0)
	}
	return s.queries.Bind("Update", sqldb.Parts{"assignments": set.Part(), "guards": guards.Part(), "list": sqldb.List(raw)}, epoch)
}

// updateArrays is the UPDATE of the states of changes; of rows that are not locked it finds those only that say no later time.
func (s *Store) updateArrays(part []changed, at time.Time, epoch int64, unlocked bool) sqldb.Part {
	rows := &statement.Arrays{}
	rows.IDs(len(part), func(i int) string { return part[i].by.TaskID })
	var set, guards strings.Builder
	for _, c := range s.columns {
		if c.body() {
			continue
		}
		if c.role&guard != 0 && (c.kind != owner || unlocked) {
			rows.Add(guarded+c.name, len(part), func(i int) any { return element(part[i].from(c)) })
			guards.WriteString(" AND t." + c.name + " = c." + guarded + c.name)
		}
		if c.change == nil {
			continue
		}
		rows.Add(c.name, len(part), func(i int) any {
			if c.stays(part[i].before, part[i].by) {
				return nil
			}
			return element(part[i].to(c))
		})
		if rows.Has(c.name) {
			set.WriteString(c.name + " = " + s.queries.Get("Set_"+c.name) + next)
		}
	}
	if unlocked {
		guards.WriteString(" AND t.updated_at < moment.at")
	}
	parts := sqldb.Parts{"assignments": {Text: set.String()}, "guards": {Text: guards.String()}, "rows": rows.Rows()}
	var known *time.Time
	if !at.IsZero() {
		known = &at
	}
	return s.queries.Bind("Update", parts, known, epoch)
}

// updateBody is the UPDATE of the bodies of changes, sorted by id, each of which says something.
func (s *Store) updateBody(part []changed) sqldb.Part {
	if !s.mysql() {
		return s.queries.Part("UpdateBody", s.changedRows(part, true, false))
	}
	ids := make([]any, len(part))
	for i, r := range part {
		ids[i] = r.by.TaskID
	}
	set := s.assignmentsByID(part, ids, true, time.Time{}).Part()
	set.Text = strings.TrimSuffix(set.Text, next)
	return s.queries.Bind("UpdateBody", sqldb.Parts{"assignments": set, "list": sqldb.List(ids)})
}

// says reports whether a change writes anything of the body.
func (s *Store) says(c changed) bool {
	return slices.ContainsFunc(s.columns, func(col column) bool {
		return col.body() && col.change != nil && !col.stays(c.before, c.by)
	})
}

// changedRows are what changes write of states or bodies, as JSON. Rows that are locked name who they were read for by their fence.
func (s *Store) changedRows(part []changed, body, unlocked bool) string {
	rows := statement.NewJSON()
	for i := range part {
		r := &part[i]
		rows.Begin()
		rows.Field("id", &r.by.TaskID)
		for _, c := range s.columns {
			if c.body() != body {
				continue
			}
			if c.role&guard != 0 && (c.kind != owner || unlocked) {
				rows.Field(guarded+c.name, r.from(c))
			}
			if c.change != nil && !c.stays(r.before, r.by) {
				rows.Field(c.name, plain(r.to(c)))
			}
		}
	}
	return rows.String()
}

// plain is a pointer of a column, that of a delay as one of microseconds.
func plain(p any) any {
	if d, delay := p.(*taskstate.Delay); delay {
		n := micros(*d)
		return &n
	}
	return p
}

// next stands after each assignment.
const next = ",\n  "

// assignmentsByID are the assignments of MySQL's statements: of what changes write of states or bodies.
func (s *Store) assignmentsByID(part []changed, ids []any, body bool, at time.Time) *byID {
	set := &byID{ids: ids}
	for _, c := range s.columns {
		stays := func(r changed) bool { return c.stays(r.before, r.by) }
		if c.body() != body || c.change == nil || !slices.ContainsFunc(part, func(r changed) bool { return !stays(r) }) {
			continue
		}
		set.SQL("t." + c.name + " = ")
		pointer := func(i int) any {
			if stays(part[i]) {
				return nil
			}
			return part[i].to(c)
		}
		set.value(pointer, func(p any) {
			switch d, delay := p.(*taskstate.Delay); {
			case p == nil:
				set.SQL("t." + c.name)
			case !delay:
				set.SQL("?", c.argument(p))
			case d.Kind == taskstate.DelayIn:
				s.instant(&set.Pieces, at, d.In)
			case c.kind == nullableInstant:
				set.SQL("NULL")
			default:
				set.SQL("?", never)
			}
		})
		set.SQL(next)
	}
	return set
}

// instant adds the time that is d after at; zero: after the server's now.
func (s *Store) instant(b *statement.Pieces, at time.Time, d time.Duration) {
	if at.IsZero() {
		b.SQL(s.queries.Get("FromNow"), boundedMicros(d))
	} else {
		b.SQL("?", at.Add(time.Duration(boundedMicros(d))*time.Microsecond))
	}
}

// insertStatements are the INSERTs of new tasks, bodies before states, at an instant, in their order. One is enough on Postgres.
func (s *Store) insertStatements(batch []*task, now time.Time) []sqldb.Part {
	if s.postgres() {
		return []sqldb.Part{s.insertArrays(batch, now)}
	}
	bodies, states := &statement.Pieces{}, &statement.Pieces{}
	if !s.mysql() {
		body, state := statement.NewJSON(), statement.NewJSON()
		for _, t := range batch {
			body.Begin()
			for _, c := range s.columns {
				if c.role&made != 0 && c.argument(c.field(t)) != nil {
					body.Field(c.name, c.field(t))
				}
			}
			state.Begin()
			state.Field("id", &t.ID)
		}
		return []sqldb.Part{s.queries.Part("InsertBody", now, body.String()), s.queries.Part("InsertState", now, now, now, state.String())}
	}
	said := s.said(batch)
	names := make([]string, len(said))
	for i, c := range said {
		names[i] = c.name
	}
	for i, t := range batch {
		if i > 0 {
			bodies.SQL(", ")
			states.SQL(", ")
		}
		bodies.SQL("(")
		for _, c := range said {
			bodies.SQL("?, ", c.argument(c.field(t)))
		}
		bodies.SQL("?)", now)
		states.SQL("(?, 'QUEUED', ?, ?, ?)", sqldb.RawID(s.Dialect(), t.ID), now, now, now)
	}
	columns := sqldb.Part{Text: strings.Join(append(names, "created_at"), ", ")}
	return []sqldb.Part{
		s.queries.Bind("InsertBody", sqldb.Parts{"columns": columns, "rows": bodies.Part()}),
		s.queries.Bind("InsertState", sqldb.Parts{"rows": states.Part()}),
	}
}

// insertArrays is the INSERT of new tasks at an instant.
func (s *Store) insertArrays(batch []*task, now time.Time) sqldb.Part {
	bodies, states := &statement.Arrays{}, &statement.Arrays{}
	for _, c := range s.said(batch) {
		bodies.Add(c.name, len(batch), func(i int) any {
			if c.argument(c.field(batch[i])) == nil {
				return nil
			}
			return element(c.field(batch[i]))
		})
	}
	states.IDs(len(batch), func(i int) string { return batch[i].ID })
	return s.queries.Bind("InsertState", sqldb.Parts{
		"columns": bodies.List(""), "values": bodies.List("c."), "bodies": bodies.Rows(), "states": states.Rows(),
	}, now, now, now, now)
}

// element is what a pointer of a column says, as an array has it.
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
		return micros(*p)
	}
	panic("taskstore: a column without an element")
}

// said are the columns of bodies of which some new task says something; the others have their default, and the server need not read
// each word.
func (s *Store) said(batch []*task) []column {
	return slices.DeleteFunc(slices.Clone(s.columns), func(c column) bool {
		return c.role&made == 0 || !slices.ContainsFunc(batch, func(t *task) bool {
			v := c.argument(c.field(t))
			return v != nil && v != ""
		})
	})
}

// byID collects what is a function of a row's id in MySQL's statements.
type byID struct {
	statement.Pieces
	ids []any // sorted, as the table has them
}

// value adds a function of the id: pointer is the i-th row's, leaf adds what one says.
func (b *byID) value(pointer func(i int) any, leaf func(p any)) {
	starts := []int{0} // of runs of equal values
	for i := 1; i < len(b.ids); i++ {
		if p, q := pointer(i-1), pointer(i); (p == nil) != (q == nil) || p != nil && !same(p, q) {
			starts = append(starts, i)
		}
	}
	b.tree(starts, func(i int) { leaf(pointer(i)) })
}

// tree adds a balanced tree of IFs over runs.
func (b *byID) tree(starts []int, leaf func(i int)) {
	if len(starts) == 1 {
		leaf(starts[0])
		return
	}
	middle := len(starts) / 2
	b.SQL("IF(t.id < ?,", b.ids[starts[middle]])
	b.tree(starts[:middle], leaf)
	b.SQL(",")
	b.tree(starts[middle:], leaf)
	b.SQL(")")
}

// micros is a delay as microseconds from now.
func micros(d taskstate.Delay) int64 {
	if d.Kind == taskstate.DelayIn {
		return boundedMicros(d.In)
	}
	return neverMicros
}

// boundedMicros is d in whole microseconds, at most farMicros in either direction.
func boundedMicros(d time.Duration) int64 {
	return max(-farMicros, min(d.Microseconds(), farMicros))
}

// written is when a transaction wrote its changes, and when the lease ends of whoever holds what it claimed.
type written struct{ at, lease time.Time }

// time is what a column says once a delay is written; before is what it said.
func (w written) time(d taskstate.Delay, before time.Time) time.Time {
	switch d.Kind {
	case taskstate.DelayNever:
		return time.Time{}
	case taskstate.DelayIn:
		return w.at.Add(time.Duration(boundedMicros(d.In)) * time.Microsecond)
	case taskstate.DelayLease:
		return w.lease
	case taskstate.DelayKeep:
	}
	return before
}

// clean makes text of any origin valid UTF-8 without NUL, which Postgres cannot keep.
func clean(text string) string {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		return text
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
