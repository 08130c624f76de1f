// Package filter reads filter expressions: which tasks a list shows, and which a bulk operation is about. It is the one parser for the
// API, the console and the command line (contract §4).
//
//	status:DEAD,RETRYING kb:legal error~"connection refused" stage:embed age>1h attempt>=3 doc~"2024"
package filter

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// MaxLength is the most characters of an expression.
	MaxLength = 1000
	maxValue  = 200 // characters of one value
)

// Filter is what an expression says.
type Filter struct {
	Query taskstate.Query // without order, place and limit; KnowledgeBase is empty
	Base  string          // the name or id of a knowledge base; empty: any
	Text  string          // the expression, without blanks around it
}

// Error says what is wrong with an expression.
type Error struct {
	At      int // characters before the place
	Problem string
}

func (e *Error) Error() string { return fmt.Sprintf("at character %d: %s", e.At+1, e.Problem) }

// term is one condition of an expression.
type term struct {
	name, op, value string
	at              int
}

// field is what a name may be compared with, and how it changes the query.
type field struct {
	name, ops string // ops: the operators with blanks between them
	take      func(f *Filter, t term, now time.Time) error
}

// fields are all names, in the order in which an error lists them.
var fields = []field{
	{"status", ":", func(f *Filter, t term, _ time.Time) error {
		for word := range strings.SplitSeq(t.value, ",") {
			s := taskstate.Status(strings.ToUpper(strings.TrimSpace(word)))
			if !slices.Contains(taskstate.Statuses(), s) {
				return t.wrong("status %s is none of %s", shown(word), joined(taskstate.Statuses()))
			}
			if !slices.Contains(f.Query.Statuses, s) {
				f.Query.Statuses = append(f.Query.Statuses, s)
			}
		}
		return nil
	}},
	{"kb", ":", func(f *Filter, t term, _ time.Time) error { f.Base = t.value; return nil }},
	{"stage", ":", func(f *Filter, t term, _ time.Time) error {
		f.Query.Stage = taskstate.Stage(strings.ToLower(t.value))
		return t.word(string(f.Query.Stage), "a stage, such as embed")
	}},
	{"error", "~", func(f *Filter, t term, _ time.Time) error { f.Query.Error = t.value; return nil }},
	{"doc", ": ~", func(f *Filter, t term, _ time.Time) error {
		if t.op == "~" {
			f.Query.FileName = t.value
			return nil
		}
		f.Query.DocumentID = strings.ToLower(t.value)
		return t.word(f.Query.DocumentID, "the id of a document; doc~ looks into file names")
	}},
	{"age", "> <", func(f *Filter, t term, now time.Time) error {
		return t.when(now, &f.Query.CreatedAfter, &f.Query.CreatedBefore)
	}},
	{"idle", "> <", func(f *Filter, t term, now time.Time) error {
		return t.when(now, &f.Query.UpdatedAfter, &f.Query.UpdatedBefore)
	}},
	{"attempt", ": >= > <= <", func(f *Filter, t term, _ time.Time) error { return t.attempts(&f.Query) }},
	{"code", ":", func(f *Filter, t term, _ time.Time) error {
		f.Query.Code = strings.ToUpper(t.value)
		return t.word(f.Query.Code, "an error code, such as ENCRYPTED")
	}},
	{"group", ":", func(f *Filter, t term, _ time.Time) error {
		f.Query.FailureGroup = strings.ToLower(t.value)
		if len(t.value) != taskstate.GroupLength || strings.Trim(f.Query.FailureGroup, "0123456789abcdef") != "" {
			return t.wrong("group %s is not the id of a failure group: %d hexadecimal digits", shown(t.value), taskstate.GroupLength)
		}
		return nil
	}},
	{"type", ":", func(f *Filter, t term, _ time.Time) error {
		f.Query.Type = t.value
		return t.word(t.value, "a type of task, such as document")
	}},
	{"workflow", ":", func(f *Filter, t term, _ time.Time) error {
		f.Query.Workflow = t.value
		return t.word(t.value, "the id of a workflow, such as ingest.url")
	}},
	{"user", ":", func(f *Filter, t term, _ time.Time) error { f.Query.UserID = t.value; return nil }},
	{"id", ":", func(f *Filter, t term, _ time.Time) error {
		f.Query.Text = strings.ToLower(t.value)
		return t.word(f.Query.Text, "the id of a task")
	}},
}

// Parse reads an expression at a moment, from which ages are counted: conditions with blanks between them, all of which hold. A
// word without a name, or a text in quotation marks, is looked for in ids, file names and errors. The empty expression is every task.
// Errors: *Error.
func Parse(text string, now time.Time) (Filter, error) {
	f := Filter{Text: strings.TrimSpace(text)}
	if n := utf8.RuneCountInString(text); n > MaxLength {
		return f, &Error{MaxLength, fmt.Sprintf("the expression has %d characters, allowed are %d", n, MaxLength)}
	}
	if at := strings.IndexFunc(text, func(r rune) bool {
		return r == utf8.RuneError || unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r'
	}); at >= 0 {
		return f, &Error{utf8.RuneCountInString(text[:at]), "a control character, or bytes that are not UTF-8"}
	}
	said := map[string]bool{}
	s := scanner{text: []rune(text)}
	for {
		t, more, err := s.next()
		if err != nil || !more {
			return f, err
		}
		if t.name == "" {
			if f.Query.Text != "" {
				return f, t.wrong("two texts to look for; put them into one pair of quotation marks")
			}
			f.Query.Text = t.value
			continue
		}
		known := slices.IndexFunc(fields, func(f field) bool { return f.name == t.name })
		if known < 0 {
			return f, t.wrong("unknown name %s; known are %s", shown(t.name), names())
		}
		// two bounds of a number or a time are no contradiction
		if key := t.name + bound(t.op); said[key] {
			return f, t.wrong("%s is said twice", t.name)
		} else {
			said[key] = true
		}
		if ops := strings.Fields(fields[known].ops); !slices.Contains(ops, t.op) {
			return f, t.wrong("%s takes %s, not %s", t.name, strings.Join(ops, " or "), t.op)
		}
		if t.name == "id" && f.Query.Text != "" {
			return f, t.wrong("id: and a text to look for; use one of them")
		}
		if err := fields[known].take(&f, t, now); err != nil {
			return f, err
		}
	}
}

// bound tells lower bounds from upper ones.
func bound(op string) string {
	if op == "" {
		return op
	}
	return op[:1]
}

// scanner walks over an expression.
type scanner struct {
	text []rune
	at   int
}

// next reads a term; more is false at the end.
func (s *scanner) next() (t term, more bool, err error) {
	for s.at < len(s.text) && unicode.IsSpace(s.text[s.at]) {
		s.at++
	}
	if t.at = s.at; s.at == len(s.text) {
		return t, false, nil
	}
	begin := s.at
	for s.at < len(s.text) && s.text[s.at] >= 'a' && s.text[s.at] <= 'z' {
		s.at++
	}
	if op := s.operator(); s.at > begin && op != "" {
		t.name, t.op = string(s.text[begin:s.at]), op
		s.at += len(op)
	} else {
		s.at = begin
	}
	t.value, err = s.value(t)
	return t, err == nil, err
}

// operator is the one that stands here; empty: none.
func (s *scanner) operator() string {
	for _, op := range []string{">=", "<=", ":", "~", ">", "<"} {
		if strings.HasPrefix(string(s.text[s.at:min(len(s.text), s.at+len(op))]), op) {
			return op
		}
	}
	return ""
}

// value reads a word, or a text in quotation marks in which \" and \\ stand for " and \.
func (s *scanner) value(t term) (string, error) {
	var b strings.Builder
	if s.at < len(s.text) && s.text[s.at] == '"' {
		from := s.at
		for s.at++; ; s.at++ {
			switch {
			case s.at >= len(s.text):
				return "", &Error{from, "a quotation mark that is not closed"}
			case s.text[s.at] == '\\' && s.at+1 < len(s.text):
				s.at++
			case s.text[s.at] == '"':
				s.at++
				if s.at < len(s.text) && !unicode.IsSpace(s.text[s.at]) {
					return "", &Error{s.at, "a blank is missing after the closing quotation mark"}
				}
				return t.checked(b.String())
			}
			b.WriteRune(s.text[s.at])
		}
	}
	for ; s.at < len(s.text) && !unicode.IsSpace(s.text[s.at]); s.at++ {
		if s.text[s.at] == '"' {
			return "", &Error{s.at, "a quotation mark inside of a word; put the whole value into quotation marks"}
		}
		b.WriteRune(s.text[s.at])
	}
	return t.checked(b.String())
}

// checked refuses a value that is empty or too long.
func (t term) checked(value string) (string, error) {
	value = strings.TrimSpace(value)
	switch n := utf8.RuneCountInString(value); {
	case n == 0:
		return "", t.wrong("%s%s has no value", t.name, t.op)
	case n > maxValue:
		return "", t.wrong("a value has %d characters, allowed are %d", n, maxValue)
	}
	return value, nil
}

// wrong is an error at the term.
func (t term) wrong(format string, args ...any) error {
	return &Error{t.at, fmt.Sprintf(format, args...)}
}

// word refuses what cannot be what is asked for: ids, codes and names of ours are ASCII without blanks.
func (t term) word(value, want string) error {
	if strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return t.wrong("%s%s has to be %s", t.name, t.op, want)
	}
	return nil
}

// units are those of an age.
var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// when turns an age into a bound of times: what is older is before it.
func (t term) when(now time.Time, after, before *time.Time) error {
	unit := units[t.value[len(t.value)-1]]
	n, err := strconv.ParseUint(t.value[:len(t.value)-1], 10, 32)
	if unit == 0 || err != nil || n > uint64(math.MaxInt64/unit) {
		return t.wrong("%s%s%s: an age is a whole number and s, m, h, d or w, such as 90m", t.name, t.op, shown(t.value))
	}
	at := now.Add(-time.Duration(n) * unit)
	if t.op == ">" {
		*before = at
	} else {
		*after = at
	}
	return nil
}

// attempts turns a comparison into bounds.
func (t term) attempts(q *taskstate.Query) error {
	n, err := strconv.Atoi(t.value)
	if err != nil || n < 0 || n > 1_000_000 {
		return t.wrong("attempt%s%s: a number of attempts is 0 to 1000000", t.op, shown(t.value))
	}
	switch t.op {
	case ":":
		q.AttemptsFrom, q.AttemptsBelow = n, n+1
	case ">=":
		q.AttemptsFrom = n
	case ">":
		q.AttemptsFrom = n + 1
	case "<=":
		q.AttemptsBelow = n + 1
	case "<":
		if n == 0 {
			return t.wrong("attempt<0 fits no task")
		}
		q.AttemptsBelow = n
	}
	return nil
}

// Quote is a value as an expression has it.
func Quote(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// shown quotes what a caller wrote.
func shown(text string) string {
	return strconv.QuoteToGraphic(taskstate.Shorten(text, 41))
}

// names lists the fields with their operators.
func names() string {
	out := make([]string, len(fields))
	for i, f := range fields {
		op, _, _ := strings.Cut(f.ops, " ")
		out[i] = f.name + op
	}
	return strings.Join(out, " ")
}

func joined[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}
