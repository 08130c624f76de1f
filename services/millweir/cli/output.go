package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/pkg/wire"
)

// Clean makes control characters visible, so that a server's text cannot drive the terminal.
func Clean[S ~string](s S) string {
	text := string(s)
	if strings.IndexFunc(text, unicode.IsControl) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Short cuts text to n characters.
func Short[S ~string](s S, n int) string {
	r := []rune(Clean(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// word is a text of a table that may be missing.
func word(s wire.NullText) string {
	if s == "" {
		return "-"
	}
	return Clean(s)
}

// day is a time of a table that may be missing.
func day(t wire.NullTime) string {
	if t.Missing() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// blob is a foreign value on one line of at most n characters.
func blob(b wire.Blob, n int) string {
	text := Short(b.Value, n)
	if b.Encoding != "utf-8" {
		text = Clean(b.Encoding) + ":" + text
	}
	if b.Clipped {
		text += fmt.Sprintf(" (%d bytes)", b.Bytes)
	}
	return text
}

// stdout remembers that output was lost, so that no command ends well after it.
type stdout struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (o *stdout) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// fields writes names and values for people; lines without a value are left out.
type fields struct{ io.Writer }

func (f fields) line(name, value string) {
	if value != "" && value != "-" {
		_, _ = fmt.Fprintf(f, "%-12s %s\n", name, Clean(value))
	}
}

// cell is a text of a table that may be cut: n is its most characters where the table is not the screen's own width.
type cell struct {
	text string
	n    int
}

// String is the text as plain tables show it.
func (c cell) String() string { return Short(c.text, c.n) }

// Long is a text of a table that may be cut to n characters. Ids are never.
func Long[S ~string](s S, n int) cell { return cell{Clean(s), n} }

// leastCell is to how many columns a cell is cut at most.
const leastCell = 12

// Rows writes items one after another as -o says.
type Rows[T any] struct {
	W      io.Writer
	Block  int // of so many lines the table is written at once; 0: of all
	a      *App
	header string
	row    func(T) []any
	lines  [][]any
	begun  bool
	kept   []T // for --jq over all
}

// NewRows begins a list.
func NewRows[T any](a *App, header string, row func(T) []any) *Rows[T] {
	return &Rows[T]{W: a.Out, a: a, header: header, row: row}
}

// Add takes the next item.
func (r *Rows[T]) Add(it T) error {
	switch {
	case r.a.Output == "json" && r.a.filter != nil:
		r.kept = append(r.kept, it)
		return nil
	case r.a.Output == "json":
		text, err := json.MarshalIndent(it, "  ", "  ")
		if err != nil {
			return err
		}
		between := ",\n  "
		if !r.begun {
			between = "[\n  "
		}
		r.begun = true
		_, err = fmt.Fprintf(r.W, "%s%s", between, text)
		return err
	case r.a.Output == "jsonl":
		return r.a.line(r.W, it)
	case r.a.Output == "name":
		return r.a.name(r.W, it)
	}
	if r.lines = append(r.lines, r.row(it)); r.Block > 0 && len(r.lines) >= r.Block {
		return r.flush()
	}
	return nil
}

// End writes what is left.
func (r *Rows[T]) End() error {
	switch {
	case r.a.Output == "json" && r.a.filter != nil:
		if r.kept == nil {
			r.kept = []T{}
		}
		return r.a.document(r.W, r.kept)
	case r.a.Output == "json" && !r.begun:
		_, err := fmt.Fprintln(r.W, "[]")
		return err
	case r.a.Output == "json":
		_, err := fmt.Fprint(r.W, "\n]\n")
		return err
	case r.a.Output == "jsonl", r.a.Output == "name":
		return nil
	}
	return r.flush()
}

// flush writes the lines of a table that are there; the header stands before the first ones.
func (r *Rows[T]) flush() error {
	if !r.begun {
		var head []any
		for _, name := range strings.Split(r.header, "\t") {
			head = append(head, name)
		}
		r.lines = append([][]any{head}, r.lines...)
	}
	r.begun = true
	if r.a.Width > 0 && r.a.Output != "wide" {
		fit(r.lines, r.a.Width)
	}
	w := tabwriter.NewWriter(r.W, 0, 4, 2, ' ', 0)
	for _, cells := range r.lines {
		for i, c := range cells {
			if c, cuttable := c.(cell); cuttable && r.a.Output == "wide" {
				cells[i] = c.text
			}
		}
		_, _ = fmt.Fprintf(w, strings.Repeat("%v\t", len(cells)-1)+"%v\n", cells...)
	}
	r.lines = r.lines[:0]
	return w.Flush()
}

// fit cuts what may be cut so that no line is wider than the screen, the widest column first.
func fit(lines [][]any, width int) {
	var widths, limits []int // of each column: the widest text, and that of those that may be cut
	for _, cells := range lines {
		for i, c := range cells {
			if i == len(widths) {
				widths, limits = append(widths, 0), append(limits, 0)
			}
			long, cuttable := c.(cell)
			n := runewidth.StringWidth(fmt.Sprint(c))
			if cuttable {
				n = runewidth.StringWidth(long.text)
				limits[i] = max(limits[i], n)
			} else {
				widths[i] = max(widths[i], n)
			}
		}
	}
	over := 2*(len(widths)-1) - width
	for i := range widths {
		over += max(widths[i], limits[i])
	}
	for over > 0 {
		widest := -1
		for i, n := range limits {
			if n > max(widths[i], leastCell) && (widest < 0 || n > limits[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break // the rest are ids, names and figures
		}
		limits[widest]--
		over--
	}
	for _, cells := range lines {
		for i, c := range cells {
			if long, cuttable := c.(cell); cuttable {
				cells[i] = runewidth.Truncate(long.text, max(limits[i], widths[i]), "…")
			}
		}
	}
}

// Table writes items as -o says: JSON of all, JSON lines, their names, or a table with a header and a row of each.
func Table[T any](a *App, items []T, header string, row func(T) []any) error {
	r := NewRows(a, header, row)
	for _, it := range items {
		if err := r.Add(it); err != nil {
			return err
		}
	}
	return r.End()
}

// One writes one item as -o says; its table form is given.
func One(a *App, item any, table func(io.Writer)) error {
	switch a.Output {
	case "json":
		return a.document(a.Out, item)
	case "jsonl":
		return a.line(a.Out, item)
	case "name":
		return a.name(a.Out, item)
	}
	table(a.Out)
	return nil
}

// document writes a value as indented JSON, or what --jq makes of it.
func (a *App) document(w io.Writer, v any) error {
	if a.filter != nil {
		return a.filtered(w, v, true)
	}
	return writeJSON(w, v)
}

// line writes a value as a line of JSON, or what --jq makes of it.
func (a *App) line(w io.Writer, v any) error {
	if a.filter != nil {
		return a.filtered(w, v, false)
	}
	return json.NewEncoder(w).Encode(v)
}

// filtered writes what --jq makes of a value: texts as they are, all else as JSON. Control characters of texts are shown as such
// only to a terminal: a file gets what is there.
func (a *App) filtered(w io.Writer, v any, indent bool) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	results := a.filter.RunWithContext(a.command.Context(), plain)
	for {
		result, more := results.Next()
		if !more {
			return nil
		}
		switch result := result.(type) {
		case error:
			if a.command.Context().Err() != nil {
				return a.command.Context().Err()
			}
			return BadInput(fmt.Errorf("--jq: %w", result))
		case string:
			if a.Width > 0 {
				result = Clean(result)
			}
			_, err = fmt.Fprintln(w, result)
		default:
			enc := json.NewEncoder(w)
			if indent {
				enc.SetIndent("", "  ")
			}
			err = enc.Encode(result)
		}
		if err != nil {
			return err
		}
	}
}

// name writes what a thing is called in other commands: the first field that is an id or a name.
func (a *App) name(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	id := nameIn(text)
	if id == "" {
		return Usage("-o name: what this command shows has no ids; use -o json")
	}
	_, err = fmt.Fprintln(w, Clean(id))
	return err
}

// nameIn is the first member of a JSON object, or of an object in it, that is a text and an id or a name.
func nameIn(object []byte) string {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	within := ""
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return ""
		}
		field, _ := key.(string)
		var id string
		switch {
		case field == "id" || field == "name" || field == "rule" || field == "code" || strings.HasSuffix(field, "Id"):
			if json.Unmarshal(value, &id) == nil && id != "" {
				return id
			}
		case within == "":
			within = nameIn(value)
		}
	}
	return within
}

// writeJSON writes indented JSON.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// confirm asks on a terminal; elsewhere --yes is needed.
func (a *App) confirm(question string) error {
	if a.Yes {
		return nil
	}
	if !a.Terminal {
		return Unconfirmed(errors.New(question + " Say --yes"))
	}
	_, _ = fmt.Fprint(a.Err, question+" [y/N] ")
	answer, _ := bufio.NewReader(a.In).ReadString('\n') // no answer is no
	if said := strings.ToLower(strings.TrimSpace(answer)); said == "y" || said == "yes" {
		return nil
	}
	return Unconfirmed(errors.New("not confirmed"))
}

// Counts asks the gateway for the number of tasks by status (operators).
func (a *App) Counts(ctx context.Context) (map[taskstate.Status]int64, error) {
	var stats wire.Stats
	err := a.Gateway().Get(ctx, "/internal/tasks/stats", &stats)
	return stats.Counts, err
}

// WriteReport writes what each rule said; in a table the violations follow with their histories.
func (a *App) WriteReport(r history.Report) error {
	err := Table(a, r, "RULE\tJUDGED\tVIOLATIONS\tSENTENCE", func(one history.Result) []any {
		judged := fmt.Sprint(one.Judged)
		if one.Judged == 0 && one.NotJudged != "" {
			judged = "not: " + one.NotJudged
		}
		return []any{one.Rule, judged, one.Violations, one.Sentence}
	})
	if err != nil || a.Output != "table" && a.Output != "wide" {
		return err
	}
	for _, one := range r {
		for _, e := range one.Examples {
			writeExample(a.Out, one.Rule, e)
		}
	}
	return nil
}

// writeExample shows one violation; its texts come from rows that users wrote to.
func writeExample(w io.Writer, rule string, e history.Example) {
	_, _ = fmt.Fprintf(w, "\n%s %s: %s\n", rule, Clean(e.Task), Clean(e.Problem))
	for line := range strings.SplitSeq(strings.TrimSpace(e.History), "\n") {
		if line != "" {
			_, _ = fmt.Fprintf(w, "  %s\n", Clean(line))
		}
	}
}
