package sqldb

import (
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Dialect names a family of SQL databases.
type Dialect string

// The dialects.
const (
	MySQL    Dialect = "mysql" // and MariaDB: statements are in words that both know
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// Queries are the statements of one dialect by name.
//
// A file holds statements that begin with a line "-- name: TaskApply" and end at the next one.
// A dialect's own file replaces statements of the common file by name, so that only what differs is written twice.
// Macros stand for what differs in small things; they are replaced when the files are loaded:
//
//	@now           the statement's time, with microseconds
//	@in(n)         so many microseconds after @now
//	@never         the fixed date that stands for "none" in NOT NULL columns
//	@forupdate     FOR UPDATE (SQLite: nothing, its transactions are exclusive)
//	@forshare      FOR SHARE, or LOCK IN SHARE MODE (SQLite: nothing)
//	@skiplocked    FOR UPDATE SKIP LOCKED (SQLite: nothing)
//	@forupdateof(t), @skiplockedof(t)
//	               the same for the rows of t alone on Postgres; MySQL locks those of every table
//	@thenjoin      a JOIN whose left table is read first (Postgres: JOIN, its planner decides)
//	@force(index)  FORCE INDEX (index) on MySQL, else nothing
//	@name(word)    a name that MySQL or a later MariaDB reserves
//	@rawid(text)   the text of a UUID as narrow tables keep it: 16 bytes, uuid or (SQLite) the text
//	@textid(raw)   such a key as text
//	@owner(number) the owner of a lease, "process/call", as states keep it; empty: none
//	@include(Name) the text of another statement
//	@json(a text, b bigint)
//	               the rows of a JSON array of objects, as the table c (not on MySQL); ? is the array
//
// All other marks are for whoever runs the statement:
//
//	?            the next argument
//	@part        a piece of SQL with arguments of its own: given to Bind by name
//	(@list)      a list of ?, given to Bind as the part "list", or expanded by List
//	(@rows:n)    rows of n ? each, expanded by Rows
//	(@any cond)  a condition without parentheses, repeated and joined by OR: expanded by Any
//
// Rebind turns ? into $1 … for Postgres.
type Queries map[string]string

// words are the macros without an argument, by dialect.
var words = map[Dialect]map[string]string{
	MySQL: {
		"now": "NOW(6)", "never": "'9999-12-31 00:00:00.000000'",
		"forupdate": "FOR UPDATE", "forshare": "LOCK IN SHARE MODE", "skiplocked": "FOR UPDATE SKIP LOCKED",
		"thenjoin": "STRAIGHT_JOIN",
	},
	Postgres: {
		"now": "statement_timestamp()", "never": "TIMESTAMPTZ '9999-12-31 00:00:00+00'",
		"forupdate": "FOR UPDATE", "forshare": "FOR SHARE", "skiplocked": "FOR UPDATE SKIP LOCKED",
		"thenjoin": "JOIN",
	},
	SQLite: {
		"now": "mw_now()", "never": "'9999-12-31 00:00:00.000000'",
		"forupdate": "", "forshare": "", "skiplocked": "",
		"thenjoin": "CROSS JOIN",
	},
}

// ownerText is @owner; CONCAT is known everywhere.
const ownerText = "CASE § WHEN 0 THEN '' ELSE COALESCE((SELECT CONCAT(w.name, '/', § & 68719476735) FROM ingest_worker w WHERE w.no = § >> 36), '') END"

// templates are the macros that put their argument (§) into a text, by dialect.
var templates = map[Dialect]map[string]string{
	MySQL: {
		"in": "(NOW(6) + INTERVAL § MICROSECOND)", "force": "FORCE INDEX (§)", "name": "`§`", "rawid": "UNHEX(REPLACE(§, '-', ''))",
		"textid":      "LOWER(CONCAT_WS('-', HEX(SUBSTR(§, 1, 4)), HEX(SUBSTR(§, 5, 2)), HEX(SUBSTR(§, 7, 2)), HEX(SUBSTR(§, 9, 2)), HEX(SUBSTR(§, 11))))",
		"forupdateof": "FOR UPDATE", "skiplockedof": "FOR UPDATE SKIP LOCKED",
		"owner": ownerText,
	},
	Postgres: {
		"in": "(statement_timestamp() + CAST(§ AS bigint) * INTERVAL '1 microsecond')", "force": "", "name": "§",
		"rawid": "CAST(§ AS uuid)", "textid": "CAST(§ AS text)",
		"forupdateof": "FOR UPDATE OF §", "skiplockedof": "FOR UPDATE OF § SKIP LOCKED",
		"owner": ownerText,
	},
	SQLite: {
		"in": "mw_add(mw_now(), §)", "force": "", "name": "§", "rawid": "§", "textid": "§", "forupdateof": "", "skiplockedof": "",
		"owner": ownerText,
	},
}

// MustLoad reads common.sql and <dialect>.sql of an embedded folder; either may be missing, not both. more are statements
// that are not written in files. What is wrong with any of them is a programmer's mistake and panics.
func MustLoad(files fs.FS, folder, dialect string, more ...Queries) Queries {
	sub, err := fs.Sub(files, folder)
	if err != nil {
		panic(err)
	}
	q, err := Load(sub, Dialect(dialect), more...)
	if err != nil {
		panic(err)
	}
	return q
}

// Load is MustLoad that returns what is wrong: no file, a name that stands twice in one, a macro that is none.
func Load(fsys fs.FS, d Dialect, more ...Queries) (Queries, error) {
	raw, found := Queries{}, false
	for _, q := range more {
		maps.Copy(raw, q)
	}
	for _, file := range []string{"common.sql", string(d) + ".sql"} {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			continue
		}
		found = true
		if err := raw.parse(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if !found {
		return nil, fmt.Errorf("no statements for %s", d)
	}
	out := make(Queries, len(raw))
	for name, text := range raw {
		var err error
		if out[name], err = raw.expand(d, text); err != nil {
			return nil, fmt.Errorf("statement %s: %w", name, err)
		}
	}
	return out, nil
}

// expand replaces the macros of a text.
func (q Queries) expand(d Dialect, text string) (string, error) {
	var b strings.Builder
	for {
		before, name, rest, found := nextMark(text)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		text = rest
		if word, ok := words[d][name]; ok {
			b.WriteString(word)
			continue
		}
		template, ok := templates[d][name]
		if !ok && name != "include" && name != "json" {
			b.WriteString("@" + name) // for whoever runs the statement
			continue
		}
		arg, after, ok := parenthesis(rest)
		if !ok {
			return "", fmt.Errorf("@%s has no argument", name)
		}
		arg, err := q.expand(d, arg)
		switch {
		case err != nil:
		case name == "include":
			arg, err = q.include(d, arg)
		case name == "json":
			arg, err = jsonRows(d, arg)
		default:
			arg = strings.ReplaceAll(template, "§", arg)
		}
		if err != nil {
			return "", err
		}
		b.WriteString(arg)
		text = after
	}
}

// include is @include.
func (q Queries) include(d Dialect, name string) (string, error) {
	text, known := q[name]
	if !known {
		return "", fmt.Errorf("@include: no statement %s", name)
	}
	return q.expand(d, text)
}

// jsonRows is @json.
func jsonRows(d Dialect, arg string) (string, error) {
	switch d {
	case Postgres:
		return "json_to_recordset(CAST(? AS json)) AS c (" + arg + ")", nil
	case SQLite:
		var names []string
		for column := range strings.SplitSeq(arg, ",") {
			name := strings.Fields(column)[0]
			names = append(names, "value ->> '"+name+"' AS "+name)
		}
		return "(SELECT " + strings.Join(names, ", ") + " FROM json_each(?)) AS c", nil
	case MySQL:
	}
	return "", fmt.Errorf("@json is not for %s", d)
}

// nextMark cuts a text at its next @name.
func nextMark(text string) (before, name, after string, found bool) {
	for from := 0; ; {
		at := strings.IndexByte(text[from:], '@')
		if at < 0 {
			return text, "", "", false
		}
		at += from
		end := at + 1
		for end < len(text) && (text[end] == '_' || 'a' <= text[end] && text[end] <= 'z') {
			end++
		}
		if end > at+1 {
			return text[:at], text[at+1 : end], text[end:], true
		}
		from = end
	}
}

// parenthesis is what stands in the parentheses that text begins with, and what comes after them.
func parenthesis(text string) (inside, after string, ok bool) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return text[min(1, i):i], text[i+1:], i > 0
		}
	}
	return "", "", false
}

// Get returns the statement of that name; an unknown name is a programmer's mistake and panics.
func (q Queries) Get(name string) string {
	s, ok := q[name]
	if !ok {
		panic("sqldb: no statement " + name)
	}
	return s
}

// Part is a piece of SQL with its arguments; a whole statement is one too.
type Part struct {
	Text string
	Args []any
}

// Parts are the parts of a statement by name.
type Parts map[string]Part

// Part is the statement of that name with its arguments.
func (q Queries) Part(name string, args ...any) Part { return Part{q.Get(name), args} }

// List is a list of ? for values, the last one repeated up to a power of two: few different texts reach the caches of
// statements. none stands for an empty list.
func List[T any](values []T, none ...T) Part {
	if len(values) == 0 {
		values = none
	}
	args := Args(Padded(values))
	return Part{marks(len(args)), args}
}

// Bind renders the statement of that name: each @part with its arguments, as often as it stands there, and ? with the next of
// args. A part that is not given is a programmer's mistake and panics.
func (q Queries) Bind(name string, parts Parts, args ...any) Part {
	text, size, count := q.Get(name), 0, len(args)
	for _, p := range parts {
		size, count = size+len(p.Text), count+len(p.Args)
	}
	var b strings.Builder
	b.Grow(len(text) + size)
	all := make([]any, 0, count)
	for {
		before, mark, rest, found := nextMark(text)
		n := 0
		for range questions(before) {
			n++
		}
		all, args = append(all, args[:n]...), args[n:]
		b.WriteString(before)
		if !found {
			break
		}
		part, given := parts[mark]
		if !given {
			panic("sqldb: statement " + name + " wants a part " + mark)
		}
		b.WriteString(part.Text)
		all = append(all, part.Args...)
		text = rest
	}
	if len(args) > 0 {
		panic("sqldb: too many arguments for statement " + name)
	}
	return Part{b.String(), all}
}

// questions are the places of a text's placeholders: a ? inside single quotes is none.
func questions(text string) iter.Seq[int] {
	return func(yield func(at int) bool) {
		quoted := false
		for i := range len(text) {
			if text[i] == '\'' {
				quoted = !quoted
			}
			if text[i] == '?' && !quoted && !yield(i) {
				return
			}
		}
	}
}

// List returns the statement with its lists (@list) expanded to so many placeholders each, from left to right, sizes ≥ 1.
func (q Queries) List(name string, sizes ...int) string {
	s := q.Get(name)
	for _, n := range sizes {
		s = strings.Replace(s, "(@list)", "("+marks(n)+")", 1)
	}
	return s
}

// Rows returns the statement with its (@rows:k) expanded to n rows of k placeholders, n ≥ 1.
func (q Queries) Rows(name string, n int) string {
	s := q.Get(name)
	at := strings.Index(s, "(@rows:")
	if at < 0 {
		panic("sqldb: no (@rows:n) in " + name)
	}
	end := at + strings.IndexByte(s[at:], ')')
	width, err := strconv.Atoi(s[at+len("(@rows:") : end])
	if err != nil {
		panic("sqldb: bad (@rows:n) in " + name)
	}
	row := "(" + marks(width) + ")"
	return s[:at] + row + strings.Repeat(", "+row, n-1) + s[end+1:]
}

// Any returns the statement with its (@any …) repeated, one size for each of them from left to right, sizes ≥ 1.
// A composite index serves such a list of pairs in every dialect, which is not so for (a, b) IN ((?, ?), …) on MariaDB.
func (q Queries) Any(name string, sizes ...int) string {
	const mark = "(@any "
	s := q.Get(name)
	for _, n := range sizes {
		at := strings.Index(s, mark)
		if at < 0 {
			panic("sqldb: no (@any …) in " + name)
		}
		end := at + strings.IndexByte(s[at:], ')')
		one := "(" + s[at+len(mark):end] + ")"
		s = s[:at] + "(" + one + strings.Repeat(" OR "+one, n-1) + ")" + s[end+1:]
	}
	return s
}

// marks is n placeholders.
func marks(n int) string { return "?" + strings.Repeat(", ?", n-1) }

// ASCII reports whether text is printable ASCII without spaces: only such text stands in columns of ids and names that we
// chose. MySQL refuses to compare such a column with any other text, and passes over spaces at the end, so whoever looks for
// text from outside there asks this first: what is not ASCII is not there.
func ASCII(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// parse adds the statements of a file, which it splits at its name lines; comment lines and empty lines are dropped.
func (q Queries) parse(text string) error {
	seen := map[string]bool{}
	name := ""
	var body strings.Builder
	flush := func() {
		if name != "" {
			q[name] = strings.TrimSuffix(strings.TrimSpace(body.String()), ";")
		}
		body.Reset()
	}
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if next, ok := strings.CutPrefix(trimmed, "-- name:"); ok {
			flush()
			name = strings.TrimSpace(next)
			if seen[name] {
				return fmt.Errorf("statement %s stands twice", name)
			}
			seen[name] = true
			continue
		}
		if trimmed == "" || strings.HasPrefix(trimmed, "--") {
			continue
		}
		body.WriteString(line)
	}
	flush()
	return nil
}

// RawID is the text of a UUID as narrow tables of a dialect keep it: an argument that needs no @rawid.
// Another text, which is no key there, panics on MySQL.
func RawID(dialect, id string) any {
	if dialect != string(MySQL) {
		return id
	}
	u := uuid.MustParse(id)
	return u[:]
}

// Rebind turns ? placeholders into $1, $2 … for Postgres and returns other dialects' text as it is.
func Rebind(d Dialect, query string) string {
	if d != Postgres || !strings.Contains(query, "?") {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 16)
	n, from := 0, 0
	for at := range questions(query) {
		n++
		b.WriteString(query[from:at])
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		from = at + 1
	}
	b.WriteString(query[from:])
	return b.String()
}
