package sqldb

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
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
// These macros stand for what differs in small things:
//
//	@now         the statement's time, with microseconds
//	@forupdate   FOR UPDATE (SQLite: nothing, its transactions are exclusive)
//	@forshare    FOR SHARE, or LOCK IN SHARE MODE (SQLite: nothing)
//	@skiplocked  FOR UPDATE SKIP LOCKED (SQLite: nothing)
//	@never       the fixed date that stands for "none" in NOT NULL columns
//	(@list)      a list of ?, expanded by List
//	(@rows:n)    rows of n ? each, expanded by Rows
//	(@any cond)  a condition without parentheses, repeated and joined by OR: expanded by Any
//
// Placeholders are ?; Rebind turns them into $1 … for Postgres.
type Queries map[string]string

// macros returns the replacements of one dialect.
func macros(d Dialect) *strings.Replacer {
	now, lock, share, skip := "NOW(6)", "FOR UPDATE", "LOCK IN SHARE MODE", "FOR UPDATE SKIP LOCKED"
	never := "'9999-12-31 00:00:00.000000'"
	switch d {
	case MySQL:
	case Postgres:
		now, never, share = "statement_timestamp()", "TIMESTAMPTZ '9999-12-31 00:00:00+00'", "FOR SHARE"
	case SQLite:
		now, lock, share, skip = "mw_now()", "", "", ""
	}
	return strings.NewReplacer("@now", now, "@forupdate", lock, "@forshare", share, "@skiplocked", skip, "@never", never)
}

// Load reads common.sql and <dialect>.sql of fsys (either may be missing, not both).
// A name that stands twice in one file is an error.
func Load(fsys fs.FS, d Dialect) (Queries, error) {
	out := Queries{}
	found := false
	for _, file := range []string{"common.sql", string(d) + ".sql"} {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			continue
		}
		found = true
		named, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for name, q := range named {
			out[name] = macros(d).Replace(q)
		}
	}
	if !found {
		return nil, fmt.Errorf("no statements for %s", d)
	}
	return out, nil
}

// MustLoad is Load of a folder of embedded files, whose faults are a programmer's.
func MustLoad(files fs.FS, folder, dialect string) Queries {
	sub, err := fs.Sub(files, folder)
	if err != nil {
		panic(err)
	}
	q, err := Load(sub, Dialect(dialect))
	if err != nil {
		panic(err)
	}
	return q
}

// Get returns the statement of that name; an unknown name is a programmer's mistake and panics.
func (q Queries) Get(name string) string {
	s, ok := q[name]
	if !ok {
		panic("sqldb: no statement " + name)
	}
	return s
}

// List returns the statement with its (@list) expanded to n placeholders, n ≥ 1.
func (q Queries) List(name string, n int) string {
	return strings.Replace(q.Get(name), "(@list)", "("+marks(n)+")", 1)
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

// parse splits a file at its name lines; comment lines and empty lines are dropped.
func parse(text string) (map[string]string, error) {
	out := map[string]string{}
	name := ""
	var body strings.Builder
	flush := func() {
		if name != "" {
			out[name] = strings.TrimSuffix(strings.TrimSpace(body.String()), ";")
		}
		body.Reset()
	}
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if next, ok := strings.CutPrefix(trimmed, "-- name:"); ok {
			flush()
			name = strings.TrimSpace(next)
			if _, twice := out[name]; twice {
				return nil, fmt.Errorf("statement %s stands twice", name)
			}
			continue
		}
		if trimmed == "" || strings.HasPrefix(trimmed, "--") {
			continue
		}
		body.WriteString(line)
	}
	flush()
	return out, nil
}

// Rebind turns ? placeholders into $1, $2 … for Postgres and answers other dialects' text as it is.
// A ? inside single quotes stays.
func Rebind(d Dialect, query string) string {
	if d != Postgres || !strings.Contains(query, "?") {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 16)
	n, quoted := 0, false
	for i := range len(query) {
		c := query[i]
		switch {
		case c == '\'':
			quoted = !quoted
		case c == '?' && !quoted:
			n++
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
